least=tonumber(ARGV[4]) or 0
load()
settle()
local hold,token,had=ARGV[2],ARGV[3],false
local function ours(r) return r and r.hold==hold and (token=='' or pack(r.token)==token) end
if ours(s.o) then
  call('HDEL',K,'o')
  s.o=nil
  had=true
else
  local r=call('HGET',K,'h'..hold)
  r=r and holder(r)
  if ours(r) then
    call('HDEL',K,'h'..hold)
    s.n=s.n-r.take
    call('HSET',K,'n',s.n)
    had=true
  end
end
if token=='' then
  local place=call('HGET',K,'j'..hold)
  if place then leave(place,hold) end
end
promote()
if had then return {1} end
return {0,0,now,0,someone()}
