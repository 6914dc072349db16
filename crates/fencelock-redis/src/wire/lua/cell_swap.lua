-- Writes if the version is the expected one. What was written under this nonce is asked first, whatever stands there now (SAFETY A6).
-- ARGV: 1 keep, 2 expected, 3 nonce, 4 whether there is a value, 5 the value
load()
settle()
local MINUTE=60000000
local known=call('HGET',K,'z'..ARGV[3])
if known then return {1,tonumber(string.match(known,'^%d+')),now} end
promote()
if s.k and s.k~='cell' and is_live() then return {4,s.k,now} end
local w=call('HMGET',K,'e','g','d')
local version,first,next=tonumber(w[1]) or 0,tonumber(w[2]) or 0,tonumber(w[3]) or 0
if pack(version)~=ARGV[2] then return {8,version,now,0,s.v or false} end
version=mint(0)
call('HSET',K,'k','cell','f',pack(version),'e',pack(version),'z'..ARGV[3],pack(version)..' '..pack(now),'i'..next,ARGV[3],
  'd',next+1)
if ARGV[4]=='1' then
  s.v=ARGV[5]
  call('HSET',K,'v',s.v)
  call('PERSIST',K)
else
  s.v=false
  call('HDEL',K,'v')
  stay(MINUTE)
end
-- More are forgotten with each write than it adds.
local last=first
while last<=next and last<first+4 do
  local nonce=call('HGET',K,'i'..last)
  local at=nonce and call('HGET',K,'z'..nonce)
  at=at and tonumber(string.match(at,' (%d+)$'))
  if at and at>now-MINUTE and at<=now+MINUTE then break end
  if nonce then call('HDEL',K,'i'..last,'z'..nonce) end
  last=last+1
end
if last>first then call('HSET',K,'g',last) end
return {1,version,now}
