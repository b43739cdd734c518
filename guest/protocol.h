/*
 * The messages between the service and the guest programs: numbers, limits, and a reader and a writer of each layout.
 * Made from src/guest/protocol.ts, which explains them, by "npm run generate".
 */
#ifndef SANDKEEP_PROTOCOL_H
#define SANDKEEP_PROTOCOL_H

#include "common/bytes.h"

#define REQUEST_EXEC 1
#define REQUEST_INPUT 2
#define REQUEST_RESIZE 3
#define REQUEST_SIGNAL 4
#define REQUEST_CREDIT 5
#define REQUEST_CLOSE 6
#define REQUEST_FILES 7
#define REQUEST_END_OWNER 8
#define REQUEST_CONNECT 9
#define REQUEST_PING 10

#define ANSWER_READY 128
#define ANSWER_STARTED 129
#define ANSWER_STDOUT 130
#define ANSWER_STDERR 131
#define ANSWER_EXITED 132
#define ANSWER_FAILED 133
#define ANSWER_CONSUMED 134
#define ANSWER_INPUT_FAILED 135
#define ANSWER_DONE 136
#define ANSWER_CONNECTED 137
#define ANSWER_ENDED 138
#define ANSWER_CLOSED 139
#define ANSWER_PONG 140

#define FILE_STAT 1
#define FILE_SET 2
#define FILE_READ_LINK 3
#define FILE_SYMLINK 4
#define FILE_MKDIR 5
#define FILE_REMOVE 6
#define FILE_REMOVE_DIR 7
#define FILE_COPY 8
#define FILE_RENAME 9
#define FILE_REAL_PATH 10
#define FILE_OPEN 11
#define FILE_OPEN_DIR 12
#define FILE_CLOSE 13
#define FILE_READ 14
#define FILE_WRITE 15
#define FILE_READ_DIR 16
#define FILE_STAT_OPEN 17
#define FILE_SET_OPEN 18

#define COMMAND_HAS_TTY 1
#define COMMAND_MAY_LEAVE_CWD 2

#define FEATURE_LEAVES_CWD 1

#define STEP_FORK 1
#define STEP_PTY 2
#define STEP_LIMIT 3
#define STEP_USER 4
#define STEP_CWD 5
#define STEP_EXEC 6
#define STEP_ARGUMENTS 7

#define OOM_NO 0
#define OOM_YES 1
#define OOM_UNKNOWN 2

#define HANDOVER_UNTIL_EXIT 1

#define REPLY_TAKEN 1
#define REPLY_HAS_ONE 2
#define REPLY_BAD 3

#define OPEN_READ 1
#define OPEN_WRITE 2
#define OPEN_APPEND 4
#define OPEN_CREATE 8
#define OPEN_TRUNCATE 16
#define OPEN_NEW 32

#define SET_MODE 1
#define SET_UID 2
#define SET_GID 4
#define SET_SIZE 8
#define SET_ATIME 16
#define SET_MTIME 32

#define BOOT_END 0
#define BOOT_HOST_NAME 1
#define BOOT_USER 2
#define BOOT_VARIABLE 3
#define BOOT_ARGUMENT 4
#define BOOT_RLIMIT 5
#define BOOT_SEED 6
#define BOOT_MODULE 7
#define BOOT_FILE 8
#define BOOT_MOUNT 9
#define BOOT_NETWORK 10
#define BOOT_RESTRICTED 11
#define BOOT_WORKDIR 12
#define BOOT_PATCH 13
#define BOOT_COPY 14
#define BOOT_HANDOFF 15
#define BOOT_HANDOFF_ARGUMENT 16
#define BOOT_HANDOFF_VARIABLE 17
#define BOOT_AUTHORITIES 18
#define BOOT_BUNDLE 19
#define BOOT_ANCHOR 20
#define BOOT_HASHED 21
#define BOOT_WHOLE 22
#define BOOT_ARCHIVE 23

#define BOOT_MOUNT_MEMORY 1
#define BOOT_MOUNT_SHARED 2
#define BOOT_MOUNT_DISK 3
#define BOOT_MOUNT_SHARED_FILE 4

#define MOUNT_READONLY 1
#define MOUNT_NOSUID 2
#define MOUNT_NODEV 4
#define MOUNT_NOEXEC 8

#define BOOT_PATCH_WRITE 1
#define BOOT_PATCH_LINK 2
#define BOOT_PATCH_DIRECTORY 3
#define BOOT_PATCH_APPEND 4
#define BOOT_PATCH_REMOVE 5

#define PATCH_REPLACE 1
#define PATCH_HAS_MODE 2

#define LIMIT_PAYLOAD 262144
#define LIMIT_INPUT_WINDOW 524288
#define LIMIT_FRAME_COST 256
#define LIMIT_TEXTS 16384
#define LIMIT_RLIMITS 32
#define LIMIT_PATH 4096
#define LIMIT_RECORD 32
#define LIMIT_HANDOVER 262144
#define LIMIT_CUT 31
#define LIMIT_BOOT_BYTES 16777216
#define LIMIT_ARCHIVE_PIECE 32764
#define LIMIT_CONTROL_LINE 120
#define LIMIT_SESSION_KEY 16
#define LIMIT_SESSION_MARK 8

#define HANDSHAKE_HELLO "sandkeep session"
#define HANDSHAKE_WELCOME "sandkeep started"
#define HANDSHAKE_REFUSAL "sandkeep refused"
#define SHARED_FILE "file"

#define HEADER_BYTES 9
struct header_layout {
  u32 length;
  u32 channel;
  u8 type;
};
static inline struct header_layout take_header(Reader *from) {
  struct header_layout to;
  to.length = (u32)take(from, 4);
  to.channel = (u32)take(from, 4);
  to.type = (u8)take(from, 1);
  return to;
}
static inline void put_header(u8 *to, struct header_layout from) {
  put(to + 0, from.length, 4);
  put(to + 4, from.channel, 4);
  put(to + 8, from.type, 1);
}

#define EXEC_BYTES 14
struct exec_layout {
  u8 flags;
  u16 rows;
  u16 cols;
  u32 credit;
  u16 args;
  u16 env;
  u8 limits;
};
static inline struct exec_layout take_exec(Reader *from) {
  struct exec_layout to;
  to.flags = (u8)take(from, 1);
  to.rows = (u16)take(from, 2);
  to.cols = (u16)take(from, 2);
  to.credit = (u32)take(from, 4);
  to.args = (u16)take(from, 2);
  to.env = (u16)take(from, 2);
  to.limits = (u8)take(from, 1);
  return to;
}
static inline void put_exec(u8 *to, struct exec_layout from) {
  put(to + 0, from.flags, 1);
  put(to + 1, from.rows, 2);
  put(to + 3, from.cols, 2);
  put(to + 5, from.credit, 4);
  put(to + 9, from.args, 2);
  put(to + 11, from.env, 2);
  put(to + 13, from.limits, 1);
}

#define LIMIT_BYTES 17
struct limit_layout {
  u8 resource;
  u64 soft;
  u64 hard;
};
static inline struct limit_layout take_limit(Reader *from) {
  struct limit_layout to;
  to.resource = (u8)take(from, 1);
  to.soft = (u64)take(from, 8);
  to.hard = (u64)take(from, 8);
  return to;
}
static inline void put_limit(u8 *to, struct limit_layout from) {
  put(to + 0, from.resource, 1);
  put(to + 1, from.soft, 8);
  put(to + 9, from.hard, 8);
}

#define RESIZE_BYTES 4
struct resize_layout {
  u16 rows;
  u16 cols;
};
static inline struct resize_layout take_resize(Reader *from) {
  struct resize_layout to;
  to.rows = (u16)take(from, 2);
  to.cols = (u16)take(from, 2);
  return to;
}
static inline void put_resize(u8 *to, struct resize_layout from) {
  put(to + 0, from.rows, 2);
  put(to + 2, from.cols, 2);
}

#define SIGNAL_BYTES 1
struct signal_layout {
  u8 number;
};
static inline struct signal_layout take_signal(Reader *from) {
  struct signal_layout to;
  to.number = (u8)take(from, 1);
  return to;
}
static inline void put_signal(u8 *to, struct signal_layout from) {
  put(to + 0, from.number, 1);
}

#define CREDIT_BYTES 4
struct credit_layout {
  u32 bytes;
};
static inline struct credit_layout take_credit(Reader *from) {
  struct credit_layout to;
  to.bytes = (u32)take(from, 4);
  return to;
}
static inline void put_credit(u8 *to, struct credit_layout from) {
  put(to + 0, from.bytes, 4);
}

#define FILES_BYTES 5
struct files_layout {
  u8 operation;
  u32 owner;
};
static inline struct files_layout take_files(Reader *from) {
  struct files_layout to;
  to.operation = (u8)take(from, 1);
  to.owner = (u32)take(from, 4);
  return to;
}
static inline void put_files(u8 *to, struct files_layout from) {
  put(to + 0, from.operation, 1);
  put(to + 1, from.owner, 4);
}

#define CONNECT_BYTES 7
struct connect_layout {
  u32 credit;
  u8 family;
  u16 port;
};
static inline struct connect_layout take_connect(Reader *from) {
  struct connect_layout to;
  to.credit = (u32)take(from, 4);
  to.family = (u8)take(from, 1);
  to.port = (u16)take(from, 2);
  return to;
}
static inline void put_connect(u8 *to, struct connect_layout from) {
  put(to + 0, from.credit, 4);
  put(to + 4, from.family, 1);
  put(to + 5, from.port, 2);
}

#define MKDIR_BYTES 5
struct mkdir_layout {
  u8 has_mode;
  u32 mode;
};
static inline struct mkdir_layout take_mkdir(Reader *from) {
  struct mkdir_layout to;
  to.has_mode = (u8)take(from, 1);
  to.mode = (u32)take(from, 4);
  return to;
}
static inline void put_mkdir(u8 *to, struct mkdir_layout from) {
  put(to + 0, from.has_mode, 1);
  put(to + 1, from.mode, 4);
}

#define OPEN_BYTES 5
struct open_layout {
  u8 flags;
  u32 mode;
};
static inline struct open_layout take_open(Reader *from) {
  struct open_layout to;
  to.flags = (u8)take(from, 1);
  to.mode = (u32)take(from, 4);
  return to;
}
static inline void put_open(u8 *to, struct open_layout from) {
  put(to + 0, from.flags, 1);
  put(to + 1, from.mode, 4);
}

#define READ_BYTES 16
struct read_layout {
  u32 handle;
  u64 offset;
  u32 length;
};
static inline struct read_layout take_read(Reader *from) {
  struct read_layout to;
  to.handle = (u32)take(from, 4);
  to.offset = (u64)take(from, 8);
  to.length = (u32)take(from, 4);
  return to;
}
static inline void put_read(u8 *to, struct read_layout from) {
  put(to + 0, from.handle, 4);
  put(to + 4, from.offset, 8);
  put(to + 12, from.length, 4);
}

#define WRITE_BYTES 12
struct write_layout {
  u32 handle;
  u64 offset;
};
static inline struct write_layout take_write(Reader *from) {
  struct write_layout to;
  to.handle = (u32)take(from, 4);
  to.offset = (u64)take(from, 8);
  return to;
}
static inline void put_write(u8 *to, struct write_layout from) {
  put(to + 0, from.handle, 4);
  put(to + 4, from.offset, 8);
}

#define ATTRIBUTES_BYTES 37
struct attributes_layout {
  u8 which;
  u32 mode;
  u32 uid;
  u32 gid;
  u64 size;
  i64 atime;
  i64 mtime;
};
static inline struct attributes_layout take_attributes(Reader *from) {
  struct attributes_layout to;
  to.which = (u8)take(from, 1);
  to.mode = (u32)take(from, 4);
  to.uid = (u32)take(from, 4);
  to.gid = (u32)take(from, 4);
  to.size = (u64)take(from, 8);
  to.atime = (i64)take(from, 8);
  to.mtime = (i64)take(from, 8);
  return to;
}
static inline void put_attributes(u8 *to, struct attributes_layout from) {
  put(to + 0, from.which, 1);
  put(to + 1, from.mode, 4);
  put(to + 5, from.uid, 4);
  put(to + 9, from.gid, 4);
  put(to + 13, from.size, 8);
  put(to + 21, from.atime, 8);
  put(to + 29, from.mtime, 8);
}

#define STAT_BYTES 36
struct stat_layout {
  u32 mode;
  u32 uid;
  u32 gid;
  u64 size;
  i64 mtime;
  i64 atime;
};
static inline struct stat_layout take_stat(Reader *from) {
  struct stat_layout to;
  to.mode = (u32)take(from, 4);
  to.uid = (u32)take(from, 4);
  to.gid = (u32)take(from, 4);
  to.size = (u64)take(from, 8);
  to.mtime = (i64)take(from, 8);
  to.atime = (i64)take(from, 8);
  return to;
}
static inline void put_stat(u8 *to, struct stat_layout from) {
  put(to + 0, from.mode, 4);
  put(to + 4, from.uid, 4);
  put(to + 8, from.gid, 4);
  put(to + 12, from.size, 8);
  put(to + 20, from.mtime, 8);
  put(to + 28, from.atime, 8);
}

#define READY_BYTES 1
struct ready_layout {
  u8 features;
};
static inline struct ready_layout take_ready(Reader *from) {
  struct ready_layout to;
  to.features = (u8)take(from, 1);
  return to;
}
static inline void put_ready(u8 *to, struct ready_layout from) {
  put(to + 0, from.features, 1);
}

#define STARTED_BYTES 4
struct started_layout {
  u32 pid;
};
static inline struct started_layout take_started(Reader *from) {
  struct started_layout to;
  to.pid = (u32)take(from, 4);
  return to;
}
static inline void put_started(u8 *to, struct started_layout from) {
  put(to + 0, from.pid, 4);
}

#define EXITED_BYTES 5
struct exited_layout {
  u32 code;
  u8 oom;
};
static inline struct exited_layout take_exited(Reader *from) {
  struct exited_layout to;
  to.code = (u32)take(from, 4);
  to.oom = (u8)take(from, 1);
  return to;
}
static inline void put_exited(u8 *to, struct exited_layout from) {
  put(to + 0, from.code, 4);
  put(to + 4, from.oom, 1);
}

#define FAILED_BYTES 5
struct failed_layout {
  u8 step;
  u32 errno;
};
static inline struct failed_layout take_failed(Reader *from) {
  struct failed_layout to;
  to.step = (u8)take(from, 1);
  to.errno = (u32)take(from, 4);
  return to;
}
static inline void put_failed(u8 *to, struct failed_layout from) {
  put(to + 0, from.step, 1);
  put(to + 1, from.errno, 4);
}

#define CONSUMED_BYTES 4
struct consumed_layout {
  u32 bytes;
};
static inline struct consumed_layout take_consumed(Reader *from) {
  struct consumed_layout to;
  to.bytes = (u32)take(from, 4);
  return to;
}
static inline void put_consumed(u8 *to, struct consumed_layout from) {
  put(to + 0, from.bytes, 4);
}

#define INPUT_FAILED_BYTES 4
struct input_failed_layout {
  u32 errno;
};
static inline struct input_failed_layout take_input_failed(Reader *from) {
  struct input_failed_layout to;
  to.errno = (u32)take(from, 4);
  return to;
}
static inline void put_input_failed(u8 *to, struct input_failed_layout from) {
  put(to + 0, from.errno, 4);
}

#define DONE_BYTES 4
struct done_layout {
  u32 errno;
};
static inline struct done_layout take_done(Reader *from) {
  struct done_layout to;
  to.errno = (u32)take(from, 4);
  return to;
}
static inline void put_done(u8 *to, struct done_layout from) {
  put(to + 0, from.errno, 4);
}

#define BOOT_RECORD_BYTES 5
struct boot_record_layout {
  u32 length;
  u8 type;
};
static inline struct boot_record_layout take_boot_record(Reader *from) {
  struct boot_record_layout to;
  to.length = (u32)take(from, 4);
  to.type = (u8)take(from, 1);
  return to;
}
static inline void put_boot_record(u8 *to, struct boot_record_layout from) {
  put(to + 0, from.length, 4);
  put(to + 4, from.type, 1);
}

#define BOOT_FILE_BYTES 4
struct boot_file_layout {
  u32 mode;
};
static inline struct boot_file_layout take_boot_file(Reader *from) {
  struct boot_file_layout to;
  to.mode = (u32)take(from, 4);
  return to;
}
static inline void put_boot_file(u8 *to, struct boot_file_layout from) {
  put(to + 0, from.mode, 4);
}

#define BOOT_PATCH_BYTES 6
struct boot_patch_layout {
  u8 operation;
  u8 flags;
  u32 mode;
};
static inline struct boot_patch_layout take_boot_patch(Reader *from) {
  struct boot_patch_layout to;
  to.operation = (u8)take(from, 1);
  to.flags = (u8)take(from, 1);
  to.mode = (u32)take(from, 4);
  return to;
}
static inline void put_boot_patch(u8 *to, struct boot_patch_layout from) {
  put(to + 0, from.operation, 1);
  put(to + 1, from.flags, 1);
  put(to + 2, from.mode, 4);
}

#define BOOT_MOUNT_BYTES 2
struct boot_mount_layout {
  u8 kind;
  u8 flags;
};
static inline struct boot_mount_layout take_boot_mount(Reader *from) {
  struct boot_mount_layout to;
  to.kind = (u8)take(from, 1);
  to.flags = (u8)take(from, 1);
  return to;
}
static inline void put_boot_mount(u8 *to, struct boot_mount_layout from) {
  put(to + 0, from.kind, 1);
  put(to + 1, from.flags, 1);
}

#define BOOT_NETWORK_BYTES 4
struct boot_network_layout {
  u32 mtu;
};
static inline struct boot_network_layout take_boot_network(Reader *from) {
  struct boot_network_layout to;
  to.mtu = (u32)take(from, 4);
  return to;
}
static inline void put_boot_network(u8 *to, struct boot_network_layout from) {
  put(to + 0, from.mtu, 4);
}

#define BOOT_HANDOFF_BYTES 1
struct boot_handoff_layout {
  u8 stop_signal;
};
static inline struct boot_handoff_layout take_boot_handoff(Reader *from) {
  struct boot_handoff_layout to;
  to.stop_signal = (u8)take(from, 1);
  return to;
}
static inline void put_boot_handoff(u8 *to, struct boot_handoff_layout from) {
  put(to + 0, from.stop_signal, 1);
}

#define SIZE_BYTES 4
struct size_layout {
  u32 bytes;
};
static inline struct size_layout take_size(Reader *from) {
  struct size_layout to;
  to.bytes = (u32)take(from, 4);
  return to;
}
static inline void put_size(u8 *to, struct size_layout from) {
  put(to + 0, from.bytes, 4);
}

#define HANDOVER_BYTES 7
struct handover_layout {
  u8 flags;
  u16 args;
  u16 env;
  u16 scripts;
};
static inline struct handover_layout take_handover(Reader *from) {
  struct handover_layout to;
  to.flags = (u8)take(from, 1);
  to.args = (u16)take(from, 2);
  to.env = (u16)take(from, 2);
  to.scripts = (u16)take(from, 2);
  return to;
}
static inline void put_handover(u8 *to, struct handover_layout from) {
  put(to + 0, from.flags, 1);
  put(to + 1, from.args, 2);
  put(to + 3, from.env, 2);
  put(to + 5, from.scripts, 2);
}

#define SCRIPT_BYTES 4
struct script_layout {
  u32 size;
};
static inline struct script_layout take_script(Reader *from) {
  struct script_layout to;
  to.size = (u32)take(from, 4);
  return to;
}
static inline void put_script(u8 *to, struct script_layout from) {
  put(to + 0, from.size, 4);
}

_Static_assert(EPERM == 1, "protocol.ts has another EPERM");
_Static_assert(ENOENT == 2, "protocol.ts has another ENOENT");
_Static_assert(EIO == 5, "protocol.ts has another EIO");
_Static_assert(ENXIO == 6, "protocol.ts has another ENXIO");
_Static_assert(E2BIG == 7, "protocol.ts has another E2BIG");
_Static_assert(ENOEXEC == 8, "protocol.ts has another ENOEXEC");
_Static_assert(EBADF == 9, "protocol.ts has another EBADF");
_Static_assert(EAGAIN == 11, "protocol.ts has another EAGAIN");
_Static_assert(ENOMEM == 12, "protocol.ts has another ENOMEM");
_Static_assert(EACCES == 13, "protocol.ts has another EACCES");
_Static_assert(EBUSY == 16, "protocol.ts has another EBUSY");
_Static_assert(EEXIST == 17, "protocol.ts has another EEXIST");
_Static_assert(EXDEV == 18, "protocol.ts has another EXDEV");
_Static_assert(ENOTDIR == 20, "protocol.ts has another ENOTDIR");
_Static_assert(EISDIR == 21, "protocol.ts has another EISDIR");
_Static_assert(EINVAL == 22, "protocol.ts has another EINVAL");
_Static_assert(ENFILE == 23, "protocol.ts has another ENFILE");
_Static_assert(EMFILE == 24, "protocol.ts has another EMFILE");
_Static_assert(ETXTBSY == 26, "protocol.ts has another ETXTBSY");
_Static_assert(EFBIG == 27, "protocol.ts has another EFBIG");
_Static_assert(ENOSPC == 28, "protocol.ts has another ENOSPC");
_Static_assert(ESPIPE == 29, "protocol.ts has another ESPIPE");
_Static_assert(EROFS == 30, "protocol.ts has another EROFS");
_Static_assert(EMLINK == 31, "protocol.ts has another EMLINK");
_Static_assert(EPIPE == 32, "protocol.ts has another EPIPE");
_Static_assert(ENAMETOOLONG == 36, "protocol.ts has another ENAMETOOLONG");
_Static_assert(ENOSYS == 38, "protocol.ts has another ENOSYS");
_Static_assert(ENOTEMPTY == 39, "protocol.ts has another ENOTEMPTY");
_Static_assert(ELOOP == 40, "protocol.ts has another ELOOP");
_Static_assert(EOPNOTSUPP == 95, "protocol.ts has another EOPNOTSUPP");
_Static_assert(EADDRNOTAVAIL == 99, "protocol.ts has another EADDRNOTAVAIL");
_Static_assert(ENETUNREACH == 101, "protocol.ts has another ENETUNREACH");
_Static_assert(ECONNRESET == 104, "protocol.ts has another ECONNRESET");
_Static_assert(ETIMEDOUT == 110, "protocol.ts has another ETIMEDOUT");
_Static_assert(ECONNREFUSED == 111, "protocol.ts has another ECONNREFUSED");
_Static_assert(EHOSTUNREACH == 113, "protocol.ts has another EHOSTUNREACH");
_Static_assert(ESTALE == 116, "protocol.ts has another ESTALE");
_Static_assert(EDQUOT == 122, "protocol.ts has another EDQUOT");
_Static_assert(ECANCELED == 125, "protocol.ts has another ECANCELED");

#endif
