-- One answer for each key: 1 extended, 0 not there any more, -1 not to be judged. A record that is over is not revived. It ends with
-- a read of the key: a connection that tracks keys goes on to hear of this one (SAFETY G6).
-- ARGV: 1 keep, then hold, token and ttl of each
local keep=tonumber(ARGV[1])
local time=redis.call('TIME')
local now=time[1]*1000000+time[2]
local out={}
for n,K in ipairs(KEYS) do
  local hold,token,ttl=ARGV[3*n-1],ARGV[3*n],tonumber(ARGV[3*n+1])
  local v=redis.pcall('HMGET',K,'o','h'..hold,'v')
  if v.err then
    out[n]=string.find(v.err,'WRONGTYPE',1,true) and 0 or -1
  else
    local function ours(h) return h and string.find(h,hold..' '..token..' ',1,true)==1 and h end
    local field,h='o',ours(v[1])
    if not h then field,h='h'..hold,ours(v[2]) end
    out[n]=0
    local who,e,l,rest=string.match(h or '','^(%S+ %d+) (%d+) (%d+) (.*)$')
    if who then
      l=math.max(tonumber(l),ttl)
      e=math.min(tonumber(e),now+l)
      if e>now then
        e=math.max(e,now+ttl)
        local new=string.format('%s %d %d %s',who,e,l,rest)
        local set=new~=h and redis.pcall('HSET',K,field,new)
        local ms=math.ceil((e-now)/1000)+keep
        local put=not v[3] and redis.call('PTTL',K)<ms-keep/2 and redis.pcall('PEXPIRE',K,string.format('%d',ms))
        out[n]=1
        for _,answer in ipairs({set,put}) do
          local why=type(answer)=='table' and answer.err
          -- It is a primary no more: whoever asks finds the one that is. Without memory, say, nobody knows of this one, and of no other.
          if why and string.find(why,'READONLY',1,true) then return answer end
          if why then out[n]=-1 end
        end
      end
    end
    redis.pcall('HEXISTS',K,field)
  end
end
return {now,out}
