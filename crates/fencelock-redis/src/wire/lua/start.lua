local K,keep=KEYS[1],tonumber(ARGV[1])
local time=redis.call('TIME')
local now=time[1]*1000000+time[2]
