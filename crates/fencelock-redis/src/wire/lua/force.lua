-- Breaks the hold of this token, and no other. ARGV: 1 keep, 2 token, 3 floor
least=tonumber(ARGV[3]) or 0
load()
settle()
local had=false
if s.o and pack(s.o.token)==ARGV[2] then
  call('HDEL',K,'o')
  s.o=nil
  had=true
elseif s.n>0 then
  local all=call('HGETALL',K)
  for x=1,#all,2 do
    local r=string.sub(all[x],1,1)=='h' and holder(all[x+1])
    if r and pack(r.token)==ARGV[2] then
      call('HDEL',K,all[x])
      s.n=s.n-r.take
      call('HSET',K,'n',s.n)
      had=true
    end
  end
end
promote()
if had then return {1} end
return {0,0,now,0,someone()}
