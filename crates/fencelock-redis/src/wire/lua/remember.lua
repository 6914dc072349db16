-- The identity of this store: the one that is there, or ours. It is kept for so long from now on, or longer if somebody said so.
local K,keep,mine=KEYS[1],tonumber(ARGV[1]),ARGV[2]
-- A server of 32 bits would cut every time and token: its %d is a C long.
if string.format('%d',2^52)~='4503599627370496' then return redis.error_reply('ERR a server of 32 bits cannot keep locks') end
local id=redis.call('GET',K)
if not id then redis.call('SET',K,mine,'PX',keep) return mine end
if redis.call('PTTL',K)<keep then redis.call('PEXPIRE',K,keep) end
return id
