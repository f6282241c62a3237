/* SPDX-License-Identifier: MIT */

/* The base of all objects: reference counts of our own (GNUstep's are invisible to ThreadSanitizer), objects alive, and zombies. */
#define _GNU_SOURCE /* vasprintf */
#import "sim.h"

#import <objc/runtime.h>
#include <stdio.h>
#include <stdlib.h>

static bool used, forked; /* forked: this process is a child of one that had used Metal */

static void after_fork_in_child(void) { forked = __atomic_load_n(&used, __ATOMIC_RELAXED); }

static void check_live_at_exit(void) {
  if (forked || !sim_number(SIM_CHECK_LIVE) || metalsim_live(true) == 0) return;
  sim_report("exit", "Metal objects are alive (listed above)");
}

__attribute__((constructor)) static void start(void) {
  pthread_atfork(NULL, NULL, after_fork_in_child);
  atexit(check_live_at_exit);
}

#ifdef SIM_ASAN
#include <sanitizer/lsan_interface.h>

/* In their first use classes of GNUstep make objects for good, which they lose sight of at exit. Those are no leaks of the
   caller. */
static void initialize_classes(void) {
  __lsan_disable();
  Class classes[] = {[NSArray class],  [NSMutableArray class], [NSDictionary class],
                     [NSString class], [NSData class],         [NSError class]};
  (void)classes;
  __lsan_enable();
}
#else
static void initialize_classes(void) {}
#endif

static pthread_once_t classes_initialized = PTHREAD_ONCE_INIT;

void sim_enter(const char *where, bool needs_pool) {
  pthread_once(&classes_initialized, initialize_classes);
  __atomic_store_n(&used, true, __ATOMIC_RELAXED);
  if (forked) sim_report(where, "called in a child after fork(), where Metal is unusable");
  if (needs_pool && ![NSAutoreleasePool currentPool]) sim_report(where, "this thread has no autorelease pool");
}

NSError *sim_error(NSString *domain, NSInteger code, const char *text) {
  NSDictionary *about = [NSDictionary dictionaryWithObject:[NSString stringWithUTF8String:text] forKey:NSLocalizedDescriptionKey];
  return [NSError errorWithDomain:domain code:code userInfo:about];
}

void sim_fail(NSError **error, NSString *domain, NSInteger code, const char *format, ...) {
  if (!error) return;
  char *text;
  va_list arguments;
  va_start(arguments, format);
  if (vasprintf(&text, format, arguments) < 0) abort();
  va_end(arguments);
  *error = sim_error(domain, code, text);
  free(text);
}

int64_t metalsim_live(bool print) {
  sim_workers_settle();
  return sim_live(print);
}

/* What a released object becomes. */
@interface SimZombie : MetalsimObject
@end

/* The youngest dead; the oldest one's memory is freed for each new one. */
enum { GRAVES = 4096 };
static id graves[GRAVES];
static unsigned oldest;
static pthread_mutex_t graves_mutex = PTHREAD_MUTEX_INITIALIZER;

static void bury(MetalsimObject *object) {
  object_setClass(object, [SimZombie class]);
  pthread_mutex_lock(&graves_mutex);
  id out = graves[oldest];
  graves[oldest] = object;
  oldest = (oldest + 1) % GRAVES;
  pthread_mutex_unlock(&graves_mutex);
  if (out) NSDeallocateObject(out);
}

@implementation MetalsimObject

+ (id)allocWithZone:(NSZone *)zone {
  SIM_GETTER();
  MetalsimObject *object = [super allocWithZone:zone];
  object->references = 1;
  object->kind = class_getName(self);
  sim_live_add(object->kind, 1);
  return object;
}

- (id)retain {
  __atomic_add_fetch(&references, 1, __ATOMIC_RELAXED);
  return self;
}

- (bool)retainIfAlive {
  int count = __atomic_load_n(&references, __ATOMIC_RELAXED);
  while (count > 0 && !__atomic_compare_exchange_n(&references, &count, count + 1, false, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED)) {
  }
  return count > 0;
}

- (oneway void)release {
  if (__atomic_sub_fetch(&references, 1, __ATOMIC_ACQ_REL) > 0) return;
  SIM_GETTER();
  SIM_REQUIRE(__atomic_load_n(&uses, __ATOMIC_ACQUIRE) == 0, "%s is released while a command buffer uses it", kind);
  [self close];
  sim_live_add(kind, -1);
  bury(self);
}

- (id)autorelease {
  SIM_ENTER();
  return [super autorelease];
}

- (NSUInteger)retainCount {
  return (NSUInteger)__atomic_load_n(&references, __ATOMIC_RELAXED);
}

- (void)close {
}

- (void)use {
  __atomic_add_fetch(&uses, 1, __ATOMIC_RELAXED);
}

- (void)unuse {
  __atomic_sub_fetch(&uses, 1, __ATOMIC_RELEASE);
}

- (const char *)kind {
  return kind;
}

@end

@implementation SimZombie

- (void)refuse:(SEL)message {
  sim_report([self kind], "a released object gets the message %s", sel_getName(message));
}

- (id)retain {
  [self refuse:_cmd];
  return self;
}

- (oneway void)release {
  [self refuse:_cmd];
}

- (id)autorelease {
  [self refuse:_cmd];
  return self;
}

- (BOOL)respondsToSelector:(SEL)selector {
  [self refuse:selector];
  return NO;
}

- (NSMethodSignature *)methodSignatureForSelector:(SEL)selector {
  [self refuse:selector];
  return nil;
}

@end

@implementation SimData

- (void)close {
  free(bytes);
}

@end

dispatch_data_t dispatch_data_create(const void *bytes, size_t size, dispatch_queue_t queue, dispatch_block_t destructor) {
  SIM_REQUIRE(!queue && !destructor, "only NULL and DISPATCH_DATA_DESTRUCTOR_DEFAULT are simulated");
  SimData *data = [[SimData alloc] init];
  data->length = size;
  data->bytes = memcpy(malloc(size + 1), bytes, size);
  return data;
}

void dispatch_release(id object) { [object release]; }

NSString *const MTLLibraryErrorDomain = @"MTLLibraryErrorDomain";
NSString *const MTLCommandBufferErrorDomain = @"MTLCommandBufferErrorDomain";
