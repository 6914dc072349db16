-- The same hold id: a writer's hold becomes a reader's, under its token. Another one: the hold passes to it, with a fresh token
-- (SAFETY A5). ARGV: 1 keep, 2 old hold, 3 old token, 4 new hold, 5 claim, 6 ttl, 7 not after, 8 floor, 9 identity, 10 take
least=tonumber(ARGV[8])
load()
settle()
local old,new,claim,ttl=ARGV[2],ARGV[4],ARGV[5],tonumber(ARGV[6])
if old~=new then
  local found=find(new,ttl)
  if found then return found end
  if now>tonumber(ARGV[7]) then return {6,0,now} end
end
local r,field=s.o,'o'
if not r or r.hold~=old then
  field='h'..old
  r=call('HGET',K,field)
  r=r and holder(r)
end
if not r or pack(r.token)~=ARGV[3] then return {3,0,now,left(),someone()} end
if old==new then
  if s.k~='rw_lock' or claim~='r' then return {7,0,now} end
  if field=='o' then
    call('HDEL',K,'o')
    s.o=nil
    r.e=math.max(r.e,now+ttl)
    r.l=math.max(r.l,ttl)
    s.n=r.take s.m=r.e s.y=r.l
    call('HSET',K,'h'..old,text(r))
    shared()
    stay(ttl)
    promote()
    return {1,r.token,now,now-r.a}
  end
  return find(old,ttl)
end
local was=field=='o' and (s.k=='rw_lock' and 'w' or 'm') or (s.k=='rw_lock' and 'r' or 'p')
if was~=claim or (claim=='p' and r.take~=tonumber(ARGV[10])) then return {3,0,now,left(),someone()} end
call('HDEL',K,field)
local identity=ARGV[9]
-- Without a note of its own it keeps the one that was there: host and process are the first two words.
if string.match(identity,'^%S+ %S+ $') then identity=identity..string.match(r.i,'^%S+ %S+ (.*)$') end
if field=='o' then s.o=nil else s.n=s.n-r.take end
return {1,give(new,claim,r.take,ttl,ttl,tonumber(ARGV[8]),identity),now,0}
