-- Ends the hold whose value begins so, or with `=` is so, and tells those who wait in the way that others have it.
-- KEYS: 1 the lock, 2 a list that they look at, if there is one
-- ARGV: 1 keep, 2 the value or how it begins, 3 `=` or nothing, 4 a channel or nothing
local K=KEYS[1]
local time=redis.call('TIME')
local now=time[1]*1000000+time[2]
local v=redis.pcall('GET',K)
-- No string is ours.
if type(v)~='string' then return {0,false,now} end
local seen=string.sub(v,1,ARGV[3]=='=' and 4096 or #ARGV[2])
if seen~=ARGV[2] then return {0,string.sub(v,1,4096),now,redis.call('PTTL',K)} end
redis.call('DEL',K)
if KEYS[2] then
  redis.pcall('DEL',KEYS[2])
  redis.pcall('LPUSH',KEYS[2],1)
  redis.pcall('PEXPIRE',KEYS[2],1000)
end
if ARGV[4]~='' then redis.pcall('PUBLISH',ARGV[4],K) end
return {1,0,now}
