-- One answer for each key: 1 extended, 0 not there any more, -1 not to be judged. A record that is over is not revived. What is written
-- is read once more after it: a connection that tracks keys goes on to hear of this one (SAFETY G6).
-- ARGV: 1 keep, then hold, token and ttl of each
local try,match,format=redis.pcall,string.match,string.format
local keep=tonumber(ARGV[1])
local time=redis.call('TIME')
local now=time[1]*1000000+time[2]
local function taken(h) return match(h or '','^(%S+) (%d+) (%d+) (%d+) (.*)$') end
local out={}
for n,K in ipairs(KEYS) do
  local hold,token,ttl=ARGV[3*n-1],ARGV[3*n],tonumber(ARGV[3*n+1])
  local v=try('HMGET',K,'o','h'..hold,'v')
  if v.err then
    out[n]=string.find(v.err,'WRONGTYPE',1,true) and 0 or -1
  else
    local field,h='o',v[1]
    local who,t,e,l,rest=taken(h)
    if who~=hold or t~=token then
      field,h='h'..hold,v[2]
      who,t,e,l,rest=taken(h)
    end
    out[n]=0
    if who==hold and t==token then
      l=math.max(tonumber(l),ttl)
      e=math.min(tonumber(e),now+l)
      if e>now then
        e=math.max(e,now+ttl)
        local new=format('%s %s %d %d %s',hold,token,e,l,rest)
        local set=new~=h and try('HSET',K,field,new)
        local ms=math.ceil((e-now)/1000)+keep
        local put=redis.call('PTTL',K)<ms-keep/2 and not v[3] and try('PEXPIRE',K,format('%d',ms))
        if put then try('HEXISTS',K,field) end
        local bad=type(set)=='table' and set or type(put)=='table' and put
        -- It is a primary no more: whoever asks finds the one that is. Without memory, say, nobody knows of this one, and of no other.
        if bad and string.find(bad.err,'READONLY',1,true) then return bad end
        out[n]=bad and -1 or 1
      end
    end
  end
end
return {now,out}
