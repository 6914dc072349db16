-- Ends the hold of this id and token, and no other. ARGV: 1 keep, 2 hold, 3 token, 4 floor
local K,keep=KEYS[1],tonumber(ARGV[1])
local time=redis.call('TIME')
local now=time[1]*1000000+time[2]
local seen=redis.call('HMGET',K,'o','q')
if seen[1] and (seen[2] or '0')=='0' and string.find(seen[1],ARGV[2]..' '..ARGV[3]..' ',1,true)==1
  and tonumber(string.match(seen[1],'^%S+ %d+ (%d+)'))>now then
  redis.call('HDEL',K,'o')
  return {1}
end
