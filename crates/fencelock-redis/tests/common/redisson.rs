//! What Redisson sends, by hand: its scripts in their own steps, with the names that it makes.
use super::{client, number};
use fencelock_core::Client;
use fencelock_testkit::Redis;

/// A client of ours, of the layout `redisson`.
pub async fn redisson(url: &str) -> Client {
    client(&format!("{url}{}layout=redisson", if url.contains('?') { '&' } else { '?' })).await
}

/// One lock, as its threads see it; they are called `UUID:THREAD`.
#[derive(Clone, Copy)]
pub struct Theirs<'a> {
    pub server: &'a Redis,
    pub name: &'a str,
}
pub const ONE: &str = "285475da-9152-4c83-822a-67ee2f116a79:52";
pub const TWO: &str = "1f3c6a2e-7d10-4bd1-9f35-0c7d6b1a4e02:7";

impl Theirs<'_> {
    fn eval(&self, script: &str, keys: &[&str], args: &[&str]) -> String {
        let count = keys.len().to_string();
        let words: Vec<&str> = ["EVAL", script, &count].into_iter().chain(keys.iter().copied()).collect();
        let words: Vec<&str> = words.into_iter().chain(args.iter().copied()).collect();
        let answer = self.server.ask(&words).unwrap();
        assert!(!answer.starts_with('-'), "{answer}");
        answer
    }
    /// RLock: true, it has it.
    pub fn lock(&self, who: &str, ms: &str) -> bool {
        let script = "if redis.call('exists',KEYS[1])==0 or redis.call('hexists',KEYS[1],ARGV[2])==1 then \
            redis.call('hincrby',KEYS[1],ARGV[2],1) redis.call('pexpire',KEYS[1],ARGV[1]) return -7 end \
            return redis.call('pttl',KEYS[1])";
        number(&self.eval(script, &[self.name], &[ms, who])) == -7
    }
    /// And gives it back: 1 entirely, 0 once, -1 it has not got it.
    pub fn unlock(&self, who: &str, ms: &str) -> i64 {
        let script = "if redis.call('hexists',KEYS[1],ARGV[2])==0 then return -1 end \
            if redis.call('hincrby',KEYS[1],ARGV[2],-1)>0 then redis.call('pexpire',KEYS[1],ARGV[1]) return 0 end \
            redis.call('del',KEYS[1]) redis.call('publish',KEYS[2],'0') return 1";
        number(&self.eval(script, &[self.name, &self.channel()], &[ms, who]))
    }
    /// RFencedLock: the token of it.
    pub fn fenced(&self, who: &str, ms: &str) -> Option<i64> {
        let token = format!("redisson_lock_token:{{{}}}", self.name);
        let mine = self.lock(who, ms);
        mine.then(|| number(&self.server.ask(&["INCR", &token]).unwrap()))
    }
    /// RReadWriteLock, as reader.
    pub fn read(&self, who: &str, ms: &str) -> bool {
        let script = "local mode=redis.call('hget',KEYS[1],'mode') \
            if mode==false then \
              redis.call('hset',KEYS[1],'mode','read') redis.call('hset',KEYS[1],ARGV[2],1) \
              redis.call('set',KEYS[2]..':1',1) redis.call('pexpire',KEYS[2]..':1',ARGV[1]) \
              redis.call('pexpire',KEYS[1],ARGV[1]) return -7 end \
            if mode=='read' or mode=='write' and redis.call('hexists',KEYS[1],ARGV[2]..':write')==1 then \
              local ind=redis.call('hincrby',KEYS[1],ARGV[2],1) local key=KEYS[2]..':'..ind \
              redis.call('set',key,1) redis.call('pexpire',key,ARGV[1]) \
              redis.call('pexpire',KEYS[1],math.max(redis.call('pttl',KEYS[1]),ARGV[1])) return -7 end \
            return redis.call('pttl',KEYS[1])";
        number(&self.eval(script, &[self.name, &self.timeout(who)], &[ms, who])) == -7
    }
    pub fn end_read(&self, who: &str) -> i64 {
        let script = "local mode=redis.call('hget',KEYS[1],'mode') \
            if mode==false or redis.call('hexists',KEYS[1],ARGV[1])==0 then return -1 end \
            local counter=redis.call('hincrby',KEYS[1],ARGV[1],-1) \
            if counter==0 then redis.call('hdel',KEYS[1],ARGV[1]) end \
            redis.call('del',KEYS[3]..':'..(counter+1)) \
            if redis.call('hlen',KEYS[1])>1 then \
              local most=-3 \
              for n,key in ipairs(redis.call('hkeys',KEYS[1])) do \
                counter=tonumber(redis.call('hget',KEYS[1],key)) \
                if type(counter)=='number' then for i=counter,1,-1 do \
                  most=math.max(redis.call('pttl',KEYS[4]..':'..key..':rwlock_timeout:'..i),most) end end end \
              if most>0 then redis.call('pexpire',KEYS[1],most) return 0 end \
              if mode=='write' then return 0 end end \
            redis.call('del',KEYS[1]) redis.call('publish',KEYS[2],'0') return 1";
        let keys = [self.name, &self.channel_of_both(), &self.timeout(who), &format!("{{{}}}", self.name)];
        number(&self.eval(script, &keys, &[who]))
    }
    /// RReadWriteLock, as writer.
    pub fn write(&self, who: &str, ms: &str) -> bool {
        let script = "local mode=redis.call('hget',KEYS[1],'mode') \
            if mode==false then redis.call('hset',KEYS[1],'mode','write') redis.call('hset',KEYS[1],ARGV[2],1) \
              redis.call('pexpire',KEYS[1],ARGV[1]) return -7 end \
            if mode=='write' and redis.call('hexists',KEYS[1],ARGV[2])==1 then redis.call('hincrby',KEYS[1],ARGV[2],1) \
              redis.call('pexpire',KEYS[1],redis.call('pttl',KEYS[1])+ARGV[1]) return -7 end \
            return redis.call('pttl',KEYS[1])";
        number(&self.eval(script, &[self.name], &[ms, &format!("{who}:write")])) == -7
    }
    pub fn end_write(&self, who: &str, ms: &str) -> i64 {
        let script = "if redis.call('hget',KEYS[1],'mode')~='write' then return -1 end \
            if redis.call('hexists',KEYS[1],ARGV[2])==0 then return -1 end \
            if redis.call('hincrby',KEYS[1],ARGV[2],-1)>0 then redis.call('pexpire',KEYS[1],ARGV[1]) return 0 end \
            redis.call('hdel',KEYS[1],ARGV[2]) \
            if redis.call('hlen',KEYS[1])==1 then redis.call('del',KEYS[1]) redis.call('publish',KEYS[2],'1') \
            else redis.call('hset',KEYS[1],'mode','read') end return 1";
        number(&self.eval(script, &[self.name, &self.channel_of_both()], &[ms, &format!("{who}:write")]))
    }
    /// The watchdog of a reader; before 4.4 that of all.
    pub fn watchdog(&self, who: &str, ms: &str, all: bool) -> bool {
        let script = "if redis.call('hexists',KEYS[1],ARGV[2])==0 then return 0 end \
            redis.call('pexpire',KEYS[1],ARGV[1]) \
            for n,key in ipairs(redis.call('hkeys',KEYS[1])) do \
              local counter=tonumber(redis.call('hget',KEYS[1],key)) \
              if type(counter)=='number' and (ARGV[3]=='all' or key==ARGV[2]) then for i=counter,1,-1 do \
                redis.call('pexpire',KEYS[2]..':'..key..':rwlock_timeout:'..i,ARGV[1]) end end end return 1";
        let all = if all { "all" } else { "" };
        number(&self.eval(script, &[self.name, &format!("{{{}}}", self.name)], &[ms, who, all])) == 1
    }
    pub fn channel(&self) -> String {
        format!("redisson_lock__channel:{{{}}}", self.name)
    }
    pub fn channel_of_both(&self) -> String {
        format!("redisson_rwlock:{{{}}}", self.name)
    }
    pub fn timeout(&self, who: &str) -> String {
        format!("{{{}}}:{who}:rwlock_timeout", self.name)
    }
    pub fn mode(&self) -> String {
        self.server.ask(&["HGET", self.name, "mode"]).unwrap()
    }
    pub fn holds(&self, field: &str) -> bool {
        self.server.ask(&["HEXISTS", self.name, field]).unwrap() == ":1"
    }
    pub fn is_free(&self) -> bool {
        self.server.ask(&["EXISTS", self.name]).unwrap() == ":0"
    }
}
