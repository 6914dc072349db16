-- Ends one hold, and no other part of whoever has it: a thread of theirs may write and read. Those who wait are told as Redisson tells them;
-- a writer that leaves readers behind is told, too, which Redisson keeps to itself.
-- While its slot is on its way only the keys of the hold are sure to be here. What else there may be is looked at behind, and is not missed.
-- *Invariant:* K is not cut before a reader's end that is not known.
-- KEYS: 2 the key beside this hold, of ours
-- ARGV: 4 `=` for this very field, or nothing for ours, which may be a writer's; 5 how the key beside ours begins, or nothing; 6 how a message
-- is sent; 7 channel of mutexes, 8 of readers and writers; 9 the queue of RFairLock, 10 RFencedLock's token
local P,verb=KEYS[2],ARGV[6]
local is=redis.pcall('HEXISTS',K,F)
if type(is)=='table' then
  -- What is no hash is not ours.
  if string.find(is.err,'WRONGTYPE',1,true) then return {0,false,now} end
  return is
end
if is==0 and ARGV[4]=='' then
  F=F..':write'
  is=redis.call('HEXISTS',K,F)
end
local ours,v=ARGV[5]~='',P and redis.pcall('GET',P)
if type(v)~='string' then v=false end
if is==0 or ours and v and string.sub(v,1,#ARGV[5])~=ARGV[5] then return told(0) end
local mode,writes=redis.call('HGET',K,'mode'),string.sub(F,-6)==':write'
local left,ends=redis.call('PTTL',K),P and redis.call('PTTL',P) or -2
local count,rest=tonumber(redis.call('HGET',K,F)),redis.call('HLEN',K)-1
redis.call('HDEL',K,F)
-- The token is kept from here on.
local kept=redis.pcall('PTTL',ARGV[10])
if type(kept)=='number' and kept>=0 and kept<tonumber(ARGV[1]) then redis.pcall('PEXPIRE',ARGV[10],ARGV[1]) end
if ours then
  redis.pcall('DEL',P)
elseif mode and not writes then
  -- A thread has one for each time that it entered. What is more than this ends by itself.
  for n=1,math.min(count or 1,64) do redis.pcall('DEL',beside(F)..n) end
end
local function tell(channel,message) redis.pcall(verb,channel,message) end
-- Ends it when the last of its readers does. What is not known is not cut.
local function shorten()
  if redis.call('HLEN',K)>4096 then return end
  local most,steps=0,0
  for _,field in ipairs(redis.call('HKEYS',K)) do
    if field~='mode' then
      local n=tonumber(redis.call('HGET',K,field))
      if not n or not (n>=0) or n%1~=0 then return end
      steps=steps+n
      if steps>4096 then return end
      for at=n,1,-1 do
        local one=beside(field)..at
        local ms=redis.pcall('PTTL',one)
        -- While the slot is on its way it may come yet: then two keys are refused of which one is not here.
        local is=ms==-2 and redis.pcall('EXISTS',K,one)
        if type(ms)=='table' or type(is)=='table' or ms==-1 then return end
        most=math.max(most,ms)
      end
    end
  end
  if most>0 then
    if most<left then redis.call('PEXPIRE',K,most) end
  else
    redis.call('DEL',K)
    tell(ARGV[8],'0')
  end
end
if not mode then
  if rest==0 then
    tell(ARGV[7],'0')
    local head=redis.pcall('LINDEX',ARGV[9],0)
    if type(head)=='string' then tell(ARGV[7]..':'..head,'0') end
  end
elseif rest<=1 then
  redis.call('DEL',K)
  tell(ARGV[8],writes and '1' or '0')
elseif writes then
  redis.call('HSET',K,'mode','read')
  shorten()
  tell(ARGV[8],'1')
elseif mode=='read' and (not ours or rest<64 or ends>=left) then
  -- Of many whoever ends first is not why it lasts.
  shorten()
end
-- Of ours it was over already when what stood beside it was.
if ours and not v then return told(0) end
return {1,0,now}
