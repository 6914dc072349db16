-- A lock as Redisson has it: a hash of its holders, `UUID:THREAD` or, of a writer, `UUID:THREAD:write`, with the field `mode` where there are
-- readers and writers. A hold of ours has a field of its own, and the key of Redisson's read holds beside it: it ends when the hold does
-- and says whose it is.
-- KEYS: 1 the lock
-- ARGV: 1 keep, 2 what the keys of holders begin with, 3 the field of this hold
local K,S,F=KEYS[1],ARGV[2],ARGV[3]
local time=redis.call('TIME')
local now=time[1]*1000000+time[2]
local function beside(field) return S..':'..field..':rwlock_timeout:' end
-- Somebody who holds it, after what became of the command.
local function told(what)
  local mode=redis.call('HGET',K,'mode') or ''
  for n,field in ipairs(redis.call('HSCAN',K,0,'COUNT',8)[2]) do
    if n%2==1 and field~='mode' then
      local said=redis.pcall('GET',beside((string.gsub(field,':write$','')))..1)
      return {what,field,now,redis.call('PTTL',K),mode,type(said)=='string' and said}
    end
  end
  return {what,false,now,redis.call('PTTL',K),mode}
end
