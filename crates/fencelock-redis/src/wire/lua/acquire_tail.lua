least=tonumber(ARGV[9])
load()
settle()
local found=find(hold,ttl)
if found then return found end
if now>tonumber(ARGV[8]) then return {6,0,now} end
promote()
local take,size=tonumber(ARGV[5]),tonumber(ARGV[6])
if s.k and s.k~=kind and is_live() then return {4,s.k,now} end
if size>0 and s.k==kind and s.c and s.c~=size then return {5,s.c,now} end
if s.k~=kind or size>0 and not s.c then
  s.k=kind
  if size>0 then s.c=size end
  call('HSET',K,'k',kind,'c',s.c or 0)
end
if s.q==0 and fits(claim,take) then
  return {1,give(hold,claim,take,ttl,ttl,tonumber(ARGV[9]),ARGV[12]),now,0}
end
local before,who=s.q,someone()
if ARGV[10]=='0' then
  stay(left())
  return {3,before,now,left(),who}
end
if s.q==0 then s.b=s.t end
-- Who gives up, or is handed the lock past one that does not hear, leaves a gap. When there are more of them than waiters these close
-- up, so no walk is longer than the queue asks for.
if s.t-s.b>2*s.q+16 then
  local to=s.b
  for at=s.b,s.t-1 do
    local w=call('HMGET',K,'w'..at,'x'..at)
    if w[1] then
      if to<at then
        call('HSET',K,'w'..to,w[1],'x'..to,w[2],'j'..string.match(w[1],'^%S+'),to)
        call('HDEL',K,'w'..at,'x'..at)
      end
      to=to+1
    end
  end
  s.t=to
end
call('HSET',K,'w'..s.t,hold..' '..claim..' '..take..' '..ARGV[7]..' '..ARGV[9]..' '..pack(now)..' '..ARGV[11]..' '..ARGV[12],
  'x'..s.t,pack(now+ALIVE),'j'..hold,s.t,'t',s.t+1,'q',s.q+1,'b',s.b)
stay(math.max(ttl,left()))
return {2,before,now,left(),who}
