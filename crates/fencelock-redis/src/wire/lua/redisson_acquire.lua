-- Claims it. It alone creates (SAFETY A2). What can be refused is asked for before anything is written that has no end by itself.
-- KEYS: 2 RFencedLock's token, 3 the key beside this hold
-- ARGV: 4 claim, 5 ttl, 6 not after, 7 floor, 8 how the key beside it begins, 9 how it goes on behind the token
local T,P,kind,mine=KEYS[2],KEYS[3],ARGV[4],ARGV[8]
local ttl,floor=tonumber(ARGV[5]),tonumber(ARGV[7])
local ms=math.ceil(ttl/1000)
if kind=='w' then F=F..':write' end
local mode=redis.call('HGET',K,'mode')
local holders=redis.call('HLEN',K)-(mode and 1 or 0)
if holders>0 and (kind=='m')==(mode~=false) then return {4,mode and 'rw_lock' or 'mutex',now} end
local v=redis.call('HEXISTS',K,F)==1 and redis.call('GET',P)
if v and string.sub(v,1,#mine)==mine then
  -- This very attempt's grant: it has its full ttl again, in this same step (SAFETY G1). It is counted once.
  local left=redis.call('PTTL',K)
  if left<ms and left~=-1 then redis.call('PEXPIRE',K,ms) end
  if redis.call('PTTL',P)<ms then redis.call('PEXPIRE',P,ms) end
  return {1,string.match(v,'^%d+',#mine+1),now,v}
end
if now>tonumber(ARGV[6]) then return {6,0,now} end
if holders>0 and (kind~='r' or mode~='read') then return told(3) end
local f=redis.call('GET',T) or '0'
if not string.find(f,'^%d+$') or tonumber(f)>=9007199254740991 then
  return redis.error_reply('WRONGTYPE what stands for the last token of this name cannot be raised')
end
f=tonumber(f)
if floor>now+86400000000 and floor>f then floor=0 end
local token=string.format('%.0f',math.max(f+1,now,floor+1))
v=mine..token..ARGV[9]
-- First what ends by itself: a server without memory refuses it.
redis.call('SET',P,v,'PX',ms)
-- A mode without holders is nobody's lock.
if holders==0 and mode then redis.call('DEL',K) end
local left=redis.call('PTTL',K)
-- Not there yet, or shared: whoever may not give it an end is refused here.
if left~=-1 then redis.call('PEXPIRE',K,math.max(left,ms)) end
local kept=redis.call('PTTL',T)
-- RFencedLock's own ends never.
if kept==-1 then redis.call('SET',T,token) else redis.call('SET',T,token,'PX',math.max(kept,ms+ARGV[1])) end
if kind=='m' then redis.call('HSET',K,F,1) else redis.call('HSET',K,'mode',kind=='w' and 'write' or 'read',F,1) end
if left~=-1 then redis.call('PEXPIRE',K,math.max(left,ms)) end
return {1,token,now,v}
