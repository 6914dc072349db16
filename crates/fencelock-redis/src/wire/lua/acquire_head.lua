-- Claims, or queues. It alone creates, beside an adoption (SAFETY A2).
-- ARGV: 1 keep, 2 hold, 3 kind, 4 claim, 5 take, 6 size, 7 ttl, 8 not after, 9 floor, 10 wait, 11 channel, 12 identity
local K,keep=KEYS[1],tonumber(ARGV[1])
local time=redis.call('TIME')
local now=time[1]*1000000+time[2]
local hold,kind,claim,ttl=ARGV[2],ARGV[3],ARGV[4],tonumber(ARGV[7])
local seen=redis.call('HMGET',K,'f','o','n','q','d','k')
if not (seen[2] or seen[5]) and (seen[3] or '0')=='0' and (seen[4] or '0')=='0' and (claim=='m' or claim=='w')
  and now<=tonumber(ARGV[8]) then
  -- Nobody holds, nobody waits, and it never was a cell: the most frequent case by far, in the fewest calls.
  local f,floor=tonumber(seen[1]) or 0,tonumber(ARGV[9])
  if floor>f and floor>now+86400000000 then floor=0 end
  local token=math.max(f+1,now,floor+1)
  local o=string.format('%s %d %d %s %d 1 %s',hold,token,now+ttl,ARGV[7],now,ARGV[12])
  if seen[6]==kind then
    redis.call('HSET',K,'f',string.format('%d',token),'o',o)
  else
    redis.call('HSET',K,'k',kind,'f',string.format('%d',token),'o',o)
  end
  -- As `stay`. To ask costs the server, its log and its copies less than to put it off each time.
  local ms=math.ceil(math.max(ttl,token-now)/1000)+keep
  if redis.call('PTTL',K)<ms-keep/2 then redis.call('PEXPIRE',K,string.format('%d',ms)) end
  return {1,token,now,0}
end
