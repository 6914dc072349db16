-- Claims a key that others use, too. It alone creates (SAFETY A2). What it writes it reads once more after it: a connection that tracks
-- keys hears of this one from here on (SAFETY G6).
-- ARGV: 1 keep, 2 hold, 3 ttl, 4 not after, 5 floor, 6 the value behind its token
local K,ttl,floor=KEYS[1],tonumber(ARGV[3]),tonumber(ARGV[5])
local time=redis.call('TIME')
local now=time[1]*1000000+time[2]
local mine,ms=ARGV[2]..'.fl1.',math.ceil(ttl/1000)
local v=redis.call('GET',K)
if v and string.sub(v,1,#mine)==mine then
  -- This very attempt's grant: it has its full ttl again, in this same step (SAFETY G1).
  if redis.call('PTTL',K)<ms then redis.call('PEXPIRE',K,ms) end
  redis.call('EXISTS',K)
  return {1,string.match(v,'^%d+',#mine+1),now,v}
end
if now>tonumber(ARGV[4]) then return {6,0,now} end
if v then return {3,string.sub(v,1,4096),now,redis.call('PTTL',K)} end
if floor>now+86400000000 then floor=0 end
local token=string.format('%d',math.max(now,floor+1))
v=mine..token..ARGV[6]
redis.call('SET',K,v,'NX','PX',ms)
redis.call('EXISTS',K)
return {1,token,now,v}
