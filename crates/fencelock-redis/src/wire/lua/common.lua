-- What every script goes on with that is not through yet. `K` the record, `now` the server's time in µs, `keep` for how long an
-- idle record stays, in ms. `s` is the record as it was read: o (who holds it alone), n m y l (who share it: sum, first end,
-- shortest ttl, who came last), q b t (the queue: how many, first and next place), k c f v (kind, size, last token, value).
local call,s=redis.call,nil
-- A waiter that gives no sign for so long is dead; one that was handed the lock has so long to confirm (SAFETY G2, H2).
local ALIVE,CONFIRM=3000000,1750000
local function pack(x) return string.format('%d',x) end
-- A holder: hold token end ttl since take identity
local function holder(h)
  local hold,token,e,l,a,take,i=string.match(h,'^(%S+) (%d+) (%d+) (%d+) (%d+) (%d+) (.*)$')
  return {hold=hold,token=tonumber(token),e=tonumber(e),l=tonumber(l),a=tonumber(a),take=tonumber(take),i=i}
end
local function text(r)
  return r.hold..' '..pack(r.token)..' '..pack(r.e)..' '..pack(r.l)..' '..pack(r.a)..' '..r.take..' '..r.i
end
local function load()
  local v=call('HMGET',K,'k','c','f','o','n','m','y','q','b','t','v','l')
  s={k=v[1],c=tonumber(v[2]),f=tonumber(v[3]) or 0,o=v[4] and holder(v[4]),n=tonumber(v[5]) or 0,m=tonumber(v[6]) or 0,
     y=tonumber(v[7]) or 0,q=tonumber(v[8]) or 0,b=tonumber(v[9]) or 0,t=tonumber(v[10]) or 0,v=v[11],l=v[12]}
end
-- The record stays for longer than anything in it may last (SAFETY H3), by `keep` or half of it, and until the
-- clock has passed its last token: the next one is
-- made of the clock alone. A value stays for ever.
local function stay(ttl)
  local ms=math.ceil(math.max(ttl,s.f-now,ALIVE)/1000)+keep
  if not s.v and call('PTTL',K)<ms-keep/2 then call('PEXPIRE',K,ms) end
end
-- What the one who asks has seen: whoever is handed the lock has a greater token, too (SAFETY T1). One a day ahead is a mistake.
local least=0
local function sane(floor) return floor>s.f and floor>now+86400000000 and 0 or floor end
local function mint(floor)
  s.f=math.max(s.f+1,now,sane(floor)+1,sane(least)+1)
  return s.f
end
local function shared()
  call('HSET',K,'n',s.n,'m',pack(s.m),'y',pack(s.y))
end
local function leave(place,hold)
  if call('HDEL',K,'w'..place,'x'..place,'j'..hold)>0 then
    s.q=s.q-1
    call('HSET',K,'q',s.q)
  end
end
-- An end that the waiter who asks has seen when it last looked, and what is left until then by its own clock.
local seen,rest=0,0
-- The clock has gone back (SAFETY H4). An end that nobody has moved since the waiter saw it is where the waiter says, however the clock
-- was set meanwhile: a renewal would have moved it. Any other is as far away as the lease is long, at most.
local function cut(r)
  if r.e>now+r.l then r.e=now+(r.e==seen and math.min(rest,r.l) or r.l) end
end
-- Who is over goes. Nobody is asked before the first of them can be over (SAFETY H3), or the clock has gone back (H4): without that
-- the first end is never further away than the shortest ttl.
local function settle()
  if s.o then
    local e=s.o.e
    cut(s.o)
    if s.o.e<=now then
      call('HDEL',K,'o')
      s.o=nil
    elseif s.o.e~=e then
      call('HSET',K,'o',text(s.o))
    end
  end
  if s.n>0 and (s.m<=now or s.m>now+s.y) then
    local all=call('HGETALL',K)
    s.n=0 s.m=0 s.y=0
    for x=1,#all,2 do
      if string.sub(all[x],1,1)=='h' then
        local r=holder(all[x+1])
        local e=r.e
        cut(r)
        if r.e<=now then
          call('HDEL',K,all[x])
        else
          if r.e~=e then call('HSET',K,all[x],text(r)) end
          if s.n==0 then s.m=r.e s.y=r.l end
          s.n=s.n+r.take
          s.m=math.min(s.m,r.e)
          s.y=math.min(s.y,r.l)
        end
      end
    end
    shared()
  end
end
local function fits(claim,take)
  if s.o then return false end
  if claim=='p' then return s.n+take<=(s.c or 0) end
  return claim=='r' or s.n==0
end
-- Somebody has it or wants it as what it is, so it cannot become anything else (SAFETY K1).
local function is_live()
  return s.o or s.n>0 or s.q>0 or s.v
end
local function give(hold,claim,take,ttl,lease,floor,i)
  local token=mint(floor)
  local r={hold=hold,token=token,e=now+lease,l=ttl,a=now,take=take,i=i}
  if claim=='m' or claim=='w' then
    s.o=r
    call('HSET',K,'o',text(r),'f',pack(token))
  else
    if s.n==0 then s.m=r.e s.y=ttl end
    s.n=s.n+take
    s.m=math.min(s.m,r.e)
    s.y=math.min(s.y,ttl)
    s.l=hold
    call('HSET',K,'h'..hold,text(r),'n',s.n,'m',pack(s.m),'y',pack(s.y),'f',pack(token),'l',hold)
  end
  stay(ttl)
  return token
end
-- In a cluster, where only the client is told, each lock has a channel for it, which lies with the key: only who listens at this server
-- hears it.
local function where(channel)
  if string.byte(channel)==37 then return '{'..K..'}'..channel,'SPUBLISH','SHARDNUMSUB' end
  return channel,'PUBLISH','NUMSUB'
end
local function tell(channel,hold)
  local there,say=where(channel)
  return redis.pcall(say,there,hold..' '..K)
end
-- Whether a waiter hears that its turn has come. Who listens to a pattern hears of everybody's and waits for none, so they do not
-- count (SAFETY H1); without the right to ask that they do.
local function hears(channel,hold)
  local whole,_,count=where(channel)
  local there=redis.pcall('PUBSUB',count,whole)
  -- Who may not publish hands over to nobody, and what it gives back is free all the same.
  local heard=there[2]~=0 and tell(channel,hold)
  return type(heard)=='number' and heard>0
end
-- Whether the first of all, which does not hear, has been passed for longer than a dead one counts as living, and was seen lately:
-- so it lives, and finds the lock in time with its next sign of life. Without this it never gets a lock that others hear of.
local function is_due(hold,alive)
  local who,since=string.match(call('HGET',K,'p') or '','^(%S+) (%d+)$')
  since=tonumber(since)
  if who~=hold or since>now then
    call('HSET',K,'p',hold..' '..pack(now))
    return false
  end
  return now-since>ALIVE and alive-now>ALIVE/2
end
-- Those who stand from this place on and are dead go, up to the first who lives: its place. Many together: they may be thousands,
-- and meanwhile the server answers nobody.
local function bury(at)
  while at<s.t do
    local last,ask,gone,n=math.min(at+31,s.t-1),{},{},0
    for place=at,last do
      ask[#ask+1]='w'..place
      ask[#ask+1]='x'..place
    end
    local there,lives=call('HMGET',K,unpack(ask)),nil
    for place=at,last do
      local w,alive=there[2*(place-at)+1],there[2*(place-at)+2]
      if w and tonumber(alive)>now then lives=place break end
      if w then
        n=n+1
        for _,field in ipairs({'w'..place,'x'..place,'j'..string.match(w,'^%S+')}) do gone[#gone+1]=field end
      end
    end
    if n>0 then
      s.q=s.q-n
      call('HDEL',K,unpack(gone))
      call('HSET',K,'q',s.q)
    end
    if lives then return lives end
    at=last+1
  end
  return at
end
-- Hands over to the first for as long as it fits. `me` is the one who asks: it hears of it by the answer. The dead in front go also
-- while somebody holds: else those who are killed behind a long hold would stay.
-- Invariant (SAFETY H1): who does not hear of it keeps its place. Who does has left the queue and holds for as long as it has to
-- confirm; one that does not is over like any other, and comes again at the end of the queue.
local function promote(me)
  local at,front,mine,first,held=s.b,true,nil,s.b,s.o
  while s.q>0 and at<s.t and s.o==held do
    local w=call('HMGET',K,'w'..at,'x'..at)
    if w[1] then
      local hold,claim,take,ttl,floor,_,channel,i=string.match(w[1],'^(%S+) (%S) (%d+) (%d+) (%d+) (%d+) (%S+) (.*)$')
      take=tonumber(take) ttl=tonumber(ttl) floor=tonumber(floor)
      local alive=tonumber(w[2])
      if alive>now+ALIVE then
        alive=now+ALIVE
        call('HSET',K,'x'..at,pack(alive))
      end
      if alive<=now and hold~=me then
        at=bury(at)-1
      elseif not fits(claim,take) then
        break
      elseif hold==me then
        leave(at,hold)
        mine=give(hold,claim,take,ttl,ttl,floor,i)
      elseif hears(channel,hold) or front and is_due(hold,alive) then
        leave(at,hold)
        give(hold,claim,take,ttl,math.min(ttl,CONFIRM),floor,i)
      else
        front=false
      end
    end
    at=at+1
    if front then s.b=at end
  end
  if s.b~=first then call('HSET',K,'b',s.b) end
  return mine
end
-- Somebody who is in the way: hold, claim, permits, of how many, token, identity, for how long, how long still.
local function someone()
  local r,claim=s.o,s.k=='rw_lock' and 'w' or 'm'
  if not r and s.n>0 then
    local h=s.l and call('HGET',K,'h'..s.l)
    -- The last that came has gone. Among many waiters the others are looked for in another part each time, and the one found is kept.
    for _,from in ipairs({0,now%65536}) do
      if h then break end
      local found=call('HSCAN',K,from,'MATCH','h*','COUNT',64)[2]
      h=found[2]
      if h then redis.pcall('HSET',K,'l',string.sub(found[1],2)) end
    end
    r,claim=h and holder(h),s.k=='rw_lock' and 'r' or 'p'
  end
  return r and {r.hold,claim,r.take,s.c or 0,r.token,r.i,now-r.a,r.e-now} or {}
end
-- How long until something ends by itself.
local function left()
  if s.o then return s.o.e-now end
  if s.n>0 then return s.m-now end
  return 0
end
-- How many stand before this place.
local function ahead(place)
  local n=place-s.b
  if n<=0 then return 0 end
  if n>64 or s.t-s.b==s.q then return math.min(n,s.q) end
  local all={}
  for at=s.b,place-1 do all[#all+1]='x'..at end
  n=0
  for _,there in ipairs(call('HMGET',K,unpack(all))) do
    if there then n=n+1 end
  end
  return n
end
-- This very attempt's grant or place, if there is one. A grant that is found has its full ttl again, in this same step (SAFETY G1).
local function find(hold,ttl)
  local v=call('HMGET',K,'h'..hold,'j'..hold)
  local r,field=s.o,'o'
  if not r or r.hold~=hold then
    r,field=v[1] and holder(v[1]),'h'..hold
  end
  if r then
    r.e=math.max(r.e,now+ttl)
    r.l=math.max(r.l,ttl)
    call('HSET',K,field,text(r))
    stay(ttl)
    return {1,r.token,now,now-r.a}
  end
  if v[2] then
    local place=tonumber(v[2])
    call('HSET',K,'x'..place,pack(now+ALIVE))
    local token=promote(hold)
    if token then return {1,token,now,0} end
    stay(math.max(ttl,left()))
    return {2,ahead(place),now,left(),someone()}
  end
end
