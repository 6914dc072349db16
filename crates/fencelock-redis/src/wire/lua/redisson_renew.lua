-- One answer for each hold: 1 extended, 0 not there any more, -1 not to be judged. Nothing is made to end earlier. A lock of others on
-- top of a mutex, which RReadWriteLock makes without looking, leaves nobody who has it alone.
-- KEYS: of each hold the lock, and the key beside it
-- ARGV: 1 keep, then of each its field, claim, how the key beside it begins, ttl, and RFencedLock's token, which is kept from here on
local try,keep=redis.pcall,tonumber(ARGV[1])
local time=redis.call('TIME')
local now=time[1]*1000000+time[2]
local out={}
for n=1,#KEYS/2 do
  local K,P=KEYS[2*n-1],KEYS[2*n]
  local F,kind,mine,ms,T=ARGV[5*n-3],ARGV[5*n-2],ARGV[5*n-1],math.ceil(tonumber(ARGV[5*n])/1000),ARGV[5*n+1]
  local v,has=try('GET',P),try('HMGET',K,'mode',F,F..':write')
  if type(v)=='table' or has.err then
    local err=type(v)=='table' and v.err or has.err
    out[n]=string.find(err,'WRONGTYPE',1,true) and 0 or -1
  else
    local mode,one,writes=has[1],has[2],has[3]
    local is=kind=='m' and one and not mode or kind~='m' and (mode=='read' and one or mode=='write' and writes)
    if not is or not v or string.sub(v,1,#mine)~=mine then
      out[n]=0
    else
      local put=redis.call('PTTL',P)<ms and try('PEXPIRE',P,ms)
      local left=redis.call('PTTL',K)
      if type(put)~='table' and left<ms and (left~=-1 or kind~='r') then put=try('PEXPIRE',K,ms) end
      -- It is a primary no more: whoever asks finds the one that is.
      if type(put)=='table' and string.find(put.err,'READONLY',1,true) then return put end
      local kept,most=try('PTTL',T),ms+keep+math.ceil(keep/16)
      if kept==-2 then
        -- It was taken away: ours is the last that anybody here knows. While the slot is on its way it may come yet: then two keys are
        -- refused.
        if type(try('EXISTS',K,T))~='table' then try('SET',T,string.match(mine,'(%d+)%.$'),'NX','PX',most) end
      elseif type(kept)=='number' and kept>=0 and kept<ms+keep then
        try('PEXPIRE',T,most)
      end
      out[n]=type(put)=='table' and -1 or 1
    end
  end
end
return {now,out}
