-- A writer goes on as a reader, under the same hold and token. It creates nothing. *Invariant:* whichever step is refused, there is a holder
-- and the mode is a writer's, so nobody else gets in before the end of the lease.
-- KEYS: 2 the key beside this hold
-- ARGV: 4 how that begins, 5 ttl, 6 how a message is sent, 7 the channel
local P,ms=KEYS[2],math.ceil(tonumber(ARGV[5])/1000)
local v=redis.call('GET',P)
if not v or string.sub(v,1,#ARGV[4])~=ARGV[4] then return told(3) end
local fields=redis.call('HMGET',K,'mode',F,F..':write')
local reads=fields[1]=='read' and fields[2]
if not reads and not (fields[1]=='write' and fields[3]) then return told(3) end
if redis.call('PTTL',P)<ms then redis.call('PEXPIRE',P,ms) end
if redis.call('PTTL',K)<ms then redis.call('PEXPIRE',K,ms) end
if not reads then
  redis.call('HSET',K,F,1)
  redis.call('HDEL',K,F..':write')
  redis.call('HSET',K,'mode','read')
  redis.pcall(ARGV[6],ARGV[7],'1')
end
return {1,string.match(v,'^%x+%.fl1%.(%d+)'),now,v}
