#include "configuration.h"
#include "failure.h"
#include <linux/fcntl.h>
#include <linux/mman.h>

struct configuration configuration;
static u8 *content;
static u64 content_bytes;

static void refuse(const char *what) { give_up("read the boot configuration:", what, -EINVAL); }

static char *text_of(Reader *from) {
  char *text = take_text(from);
  if (from->bad) refuse("a text has no end");
  return text;
}

static void add_text(char **texts, u32 *count, Reader *from) {
  if (*count == LIMIT_TEXTS) refuse("it has too many texts");
  texts[(*count)++] = text_of(from);
}

static void add_part(Reader *parts, int *count, Reader from) {
  if (*count == BOOT_PARTS) refuse("it has too many files or mounts");
  parts[(*count)++] = from;
}

static void add_limit(Reader *from) {
  struct limit_layout limit = take_limit(from);
  if (from->bad || configuration.limit_count == LIMIT_RLIMITS) refuse("a limit is wrong");
  configuration.limits[configuration.limit_count].resource = limit.resource;
  configuration.limits[configuration.limit_count++].value = (struct rlimit64){limit.soft, limit.hard};
}

static void handle(u8 type, Reader from) {
  struct configuration *to = &configuration;
  switch (type) {
    case BOOT_HOST_NAME: to->host_name = text_of(&from); return;
    case BOOT_USER: to->user = text_of(&from); return;
    case BOOT_WORKDIR: to->workdir = text_of(&from); return;
    case BOOT_VARIABLE: return add_text(to->environment, &to->variable_count, &from);
    case BOOT_ARGUMENT: return add_text(to->arguments, &to->argument_count, &from);
    case BOOT_RLIMIT: return add_limit(&from);
    case BOOT_SEED: to->seed = from.at, to->seed_bytes = (u64)(from.end - from.at); return;
    case BOOT_MODULE:
      if (to->module_count == BOOT_MODULES) refuse("it has too many modules");
      to->modules[to->module_count++] = text_of(&from);
      return;
    case BOOT_FILE: return add_part(to->files, &to->file_count, from);
    case BOOT_PATCH: return add_part(to->patches, &to->patch_count, from);
    case BOOT_MOUNT: return add_part(to->mounts, &to->mount_count, from);
    case BOOT_NETWORK:
      if (from.end - from.at != BOOT_NETWORK_BYTES + 8) refuse("the network is wrong");
      to->network = from.at;
      return;
    case BOOT_RESTRICTED: to->restricted = 1; return;
    case BOOT_ARCHIVE: to->is_archive = 1; return;
    case BOOT_COPY: to->is_copy = 1; return;
    case BOOT_HANDOFF:
      to->handoff.stop_signal = take_boot_handoff(&from).stop_signal;
      to->handoff.path = text_of(&from);
      return;
    case BOOT_HANDOFF_ARGUMENT: return add_text(to->handoff.arguments + 1, &to->handoff.argument_count, &from);
    case BOOT_HANDOFF_VARIABLE: return add_text(to->handoff.environment, &to->handoff.variable_count, &from);
    case BOOT_AUTHORITIES:
      to->authority_name = text_of(&from);
      to->authorities = from;
      return;
    case BOOT_BUNDLE:
      if (to->bundle_count == BOOT_STORES) refuse("it has too many stores");
      to->bundles[to->bundle_count++] = text_of(&from);
      return;
    case BOOT_ANCHOR:
      if (to->anchor_count == BOOT_STORES) refuse("it has too many stores");
      to->anchors[to->anchor_count++] = from;
      return;
    case BOOT_HASHED: to->hashed = from; return;
    case BOOT_WHOLE: to->whole = from; return;
    default: refuse("it has an unknown record");
  }
}

static void read_content(const char *disk) {
  long fd = need(call(__NR_openat, AT_FDCWD, disk, O_RDONLY | O_CLOEXEC, 0), "open the boot configuration", disk);
  long size = need(call(__NR_lseek, fd, 0, 2, 0), "measure the boot configuration", 0);
  if (size > LIMIT_BOOT_BYTES) refuse("it is too long");
  content_bytes = (u64)size;
  content = (u8 *)need(call6(__NR_mmap, 0, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), "map memory", 0);
  for (u64 has = 0; has < content_bytes;) {
    long got = need(call(__NR_pread64, fd, content + has, content_bytes - has, has), "read the boot configuration", 0);
    if (got == 0) refuse("it is cut off");
    has += (u64)got;
  }
  call(__NR_close, fd, 0, 0, 0);
}

void read_configuration(const char *disk) {
  read_content(disk);
  Reader all = {content, content + content_bytes, 0};
  for (;;) {
    struct boot_record_layout head = take_boot_record(&all);
    if (all.bad || head.length > (u64)(all.end - all.at)) refuse("it has no end");
    if (head.type == BOOT_END) break;
    handle(head.type, (Reader){all.at, all.at + head.length, 0});
    all.at += head.length;
  }
  static const char option[] = "--until-exit";
  for (u32 i = 0; i < configuration.argument_count && !same(configuration.arguments[i], "--", 3); i++)
    if (same(configuration.arguments[i], option, sizeof option)) configuration.until_exit = 1;
}

void drop_configuration(void) { call(__NR_munmap, content, content_bytes, 0, 0); }
