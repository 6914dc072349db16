-- Compare and set of a semaphore's size (SAFETY K4). ARGV: 1 keep, 2 from, 3 to, 4 kind, 5 not after: a late copy would undo what came
-- after it; 6 floor
least=tonumber(ARGV[6]) or 0
if now>tonumber(ARGV[5]) then return {6,0,now} end
load()
settle()
promote()
local from,to=tonumber(ARGV[2]),tonumber(ARGV[3])
if s.k and s.k~=ARGV[4] and is_live() then return {4,s.k,now} end
local size=s.k==ARGV[4] and s.c or nil
if size and size~=from and size~=to then return {5,size,now} end
s.k=ARGV[4] s.c=to
call('HSET',K,'k',ARGV[4],'c',to)
-- Who wants more than there is has no place any more, and is told to look.
for at=s.b,s.t-1 do
  local w=s.q>0 and call('HGET',K,'w'..at)
  if w then
    local hold,take,channel=string.match(w,'^(%S+) %S (%d+) %d+ %d+ %d+ (%S+) ')
    if tonumber(take)>to then
      leave(at,hold)
      tell(channel,hold)
    end
  end
end
promote()
stay(left())
return {1,0,now,0}
