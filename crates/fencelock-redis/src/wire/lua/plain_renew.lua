-- One answer for each key: 1 extended, 0 not there any more, -1 not to be judged. What is written is read once more after it: a
-- connection that tracks keys goes on to hear of this one (SAFETY G6). Nothing is made to end earlier, but what somebody let last for ever.
-- ARGV: 1 keep, then hold, token and ttl of each
local try=redis.pcall
local time=redis.call('TIME')
local now=time[1]*1000000+time[2]
local out={}
for n,K in ipairs(KEYS) do
  local mine,ms=ARGV[3*n-1]..'.fl1.'..ARGV[3*n]..'.',math.ceil(tonumber(ARGV[3*n+1])/1000)
  local v=try('GET',K)
  if type(v)=='table' then
    out[n]=string.find(v.err,'WRONGTYPE',1,true) and 0 or -1
  elseif not v or string.sub(v,1,#mine)~=mine then
    out[n]=0
  else
    local put=redis.call('PTTL',K)<=ms and try('PEXPIRE',K,ms)
    if put then try('EXISTS',K) end
    -- It is a primary no more: whoever asks finds the one that is.
    if type(put)=='table' and string.find(put.err,'READONLY',1,true) then return put end
    out[n]=type(put)=='table' and -1 or 1
  end
end
return {now,out}
