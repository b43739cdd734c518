#include "shares.h"
#include "../common/execute.h"
#include "../common/fail.h"
#include "../protocol.h"
#include "monitor.h"
#include <linux/fcntl.h>
#include <linux/mount.h>
#include <linux/prctl.h>
#include <linux/resource.h>
#include <linux/sched.h>
#include <linux/stat.h>
#include <linux/un.h>
#include <linux/wait.h>

#define FAMILY_UNIX 1
#define STREAM 1
#define SOCKET "share.sock"
/* Each system has it. The mount is in a namespace of the file server. */
#define SHARED_DIRECTORY "/tmp"
#define PLACE_OF_FILE SHARED_DIRECTORY "/" SHARED_FILE
#define SERVED_SOCKET 3
/* The file server has a descriptor for each file that the kernel of the sandbox knows. */
#define MOST_FILES 131072
#define EVERY_NUMBER "0 0 4294967295\n"

struct shares shares;

/* A mount of the directory that is nowhere yet. No path of the machine leads to it, and nothing is left of it. */
static long detached_mount(const struct share *share) {
  const struct mount_attr flags = {
    .attr_set = MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC | (share->is_readonly ? MOUNT_ATTR_RDONLY : 0),
    .propagation = MS_PRIVATE,
  };
  long tree = call(__NR_open_tree, share->fd, "", AT_EMPTY_PATH | OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC, 0);
  check("open a shared directory", tree);
  check("protect a shared directory", call6(__NR_mount_setattr, tree, (long)"", AT_EMPTY_PATH, (long)&flags, sizeof flags, 0));
  return tree;
}

/* A connection that waits for its file server. The path is gone before another process of the machine could use it. */
static void make_connection(long *served, long *connected) {
  struct sockaddr_un address = {.sun_family = FAMILY_UNIX, .sun_path = SOCKET};
  *served = listen_at(SOCKET, 1);
  check("open a socket for a shared directory", *served);
  *connected = call(__NR_socket, FAMILY_UNIX, STREAM | O_CLOEXEC, 0, 0);
  check("open a socket for a shared directory", *connected);
  check("connect to a shared directory", call(__NR_connect, *connected, &address, sizeof address, 0));
  call(__NR_unlinkat, AT_FDCWD, SOCKET, 0, 0);
  check("open a socket for a shared directory", call(__NR_fcntl, *served, F_SETFL, O_RDWR, 0));
}

static void limit_server(void) {
  const struct rlimit64 none = {1, 1};
  struct rlimit64 files = {MOST_FILES, MOST_FILES};
  check("forbid core dumps", call(__NR_prlimit64, 0, RLIMIT_CORE, &none, 0));
  if (call(__NR_prlimit64, 0, RLIMIT_NOFILE, &files, 0) == 0) return;
  /* Without the right to raise it. */
  check("read the limit of files", call(__NR_prlimit64, 0, RLIMIT_NOFILE, 0, &files));
  files.rlim_cur = files.rlim_max;
  check("limit the files", call(__NR_prlimit64, 0, RLIMIT_NOFILE, &files, 0));
}

static int is_file(long tree) {
  struct statx found;
  check("read a shared file", call6(__NR_statx, tree, (long)"", AT_EMPTY_PATH, STATX_TYPE, (long)&found, 0));
  return S_ISREG(found.stx_mode);
}

/* A file server serves a directory. This one is in memory, has the place of the file alone, and cannot be written. */
static void make_place_of_file(void) {
  static const char options[] = "mode=755,size=64k,nr_inodes=16";
  const long flags = MS_NOSUID | MS_NODEV | MS_NOEXEC;
  check("make a directory for a shared file",
        call6(__NR_mount, (long)"tmpfs", (long)SHARED_DIRECTORY, (long)"tmpfs", flags, (long)options, 0));
  long place = call(__NR_openat, AT_FDCWD, PLACE_OF_FILE, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0);
  check("make a place for a shared file", place);
  call(__NR_close, place, 0, 0, 0);
  check("protect the directory of a shared file",
        call6(__NR_mount, 0, (long)SHARED_DIRECTORY, 0, MS_REMOUNT | MS_RDONLY | flags, (long)options, 0));
}

/* The flags of the mount are locked by the second change of the namespace, whose user it belongs to. */
static void enter_jail(long tree) {
  check("leave the mounts", call(__NR_unshare, CLONE_NEWNS, 0, 0, 0));
  check("keep the mounts apart", call6(__NR_mount, 0, (long)"/", 0, MS_REC | MS_PRIVATE, 0, 0));
  const char *place = SHARED_DIRECTORY;
  if (is_file(tree)) {
    make_place_of_file();
    place = PLACE_OF_FILE;
  }
  check("mount a shared directory", call6(__NR_move_mount, tree, (long)"", AT_FDCWD, (long)place, MOVE_MOUNT_F_EMPTY_PATH, 0));
  check("leave the namespaces",
        call(__NR_unshare, CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS, 0, 0, 0));
}

__attribute__((noreturn)) static void become_server(long tree, long served, long errors, int ready, int go) {
  static const u64 no_signals = 0;
  static char *environment[] = {"PATH=" DEFAULT_PATH, 0};
  char byte = 0;
  write_oom_score();
  limit_server();
  enter_jail(tree);
  check("die with the supervisor", call6(__NR_prctl, PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0, 0));
  check("refuse new privileges", call6(__NR_prctl, PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0, 0));
  check("report", call(__NR_write, ready, &byte, 1, 0));
  /* The supervisor may have died before the kernel knew of its part. Its end of the pipe is closed then. */
  if (call(__NR_read, go, &byte, 1, 0) != 1) leave(EXIT_NOT_STARTED);
  check("leave its groups", call(__NR_setgroups, 0, 0, 0, 0));
  check("become root", call(__NR_setresgid, 0, 0, 0, 0));
  check("become root", call(__NR_setresuid, 0, 0, 0, 0));
  check("allow its signals", call(__NR_rt_sigprocmask, SIG_SETMASK, &no_signals, 0, sizeof no_signals));
  for (int output = 1; output <= 2; output++) check("pass the output", call(__NR_dup3, errors, output, 0, 0));
  check("pass a socket", call(__NR_dup3, served, SERVED_SOCKET, 0, 0));
  check("close descriptors", call(__NR_close_range, SERVED_SOCKET + 1, ~0u, 0, 0));
  check("leave the directory", call(__NR_chdir, "/", 0, 0, 0));
  fail("start a file server", execute(shares.command, environment));
}

static void write_map(long process, const char *name) {
  char path[64];
  copy_text(path, sizeof path, "/proc/", 6);
  char *end = put_number(path + 6, (u64)process);
  copy_text(end, 16, name, length(name));
  long fd = call(__NR_openat, AT_FDCWD, path, O_WRONLY | O_CLOEXEC, 0);
  check("open the numbers of a file server", fd);
  check("write the numbers of a file server", call(__NR_write, fd, EVERY_NUMBER, sizeof EVERY_NUMBER - 1, 0));
  call(__NR_close, fd, 0, 0, 0);
}

static void start_file_server(struct share *share, long errors) {
  long served, connected;
  int ready[2], go[2];
  char byte = 0;
  long tree = detached_mount(share);
  make_connection(&served, &connected);
  check("open a pipe", call(__NR_pipe2, ready, O_CLOEXEC, 0, 0));
  check("open a pipe", call(__NR_pipe2, go, O_CLOEXEC, 0, 0));
  share->process = call(__NR_clone, CLONE_NEWPID | SIGCHLD, 0, 0, 0);
  check("start a process", share->process);
  if (share->process == 0) {
    call(__NR_close, ready[0], 0, 0, 0);
    call(__NR_close, go[1], 0, 0, 0);
    become_server(tree, served, errors, ready[1], go[0]);
  }
  call(__NR_close, ready[1], 0, 0, 0);
  call(__NR_close, go[0], 0, 0, 0);
  /* It has said why. */
  if (call(__NR_read, ready[0], &byte, 1, 0) != 1) fail("start a file server", -ECHILD);
  write_map(share->process, "/uid_map");
  write_map(share->process, "/gid_map");
  check("start a file server", call(__NR_write, go[1], &byte, 1, 0));
  check("pass a connection", call(__NR_dup3, connected, share->fd, 0, 0));
  const long opened[] = {tree, served, connected, ready[0], go[1]};
  for (u64 i = 0; i < sizeof opened / sizeof *opened; i++) call(__NR_close, opened[i], 0, 0, 0);
}

void start_file_servers(long errors) {
  for (int i = 0; i < shares.count; i++) start_file_server(&shares.each[i], errors);
}

static int reap_server(struct share *share, int options) {
  int status;
  if (share->process <= 0 || call(__NR_wait4, share->process, &status, options, 0) != share->process) return 0;
  share->process = 0;
  return 1;
}

int has_file_server_ended(void) {
  int ended = 0;
  for (int i = 0; i < shares.count; i++) ended |= reap_server(&shares.each[i], WNOHANG);
  return ended;
}

void end_file_servers(void) {
  for (int i = 0; i < shares.count; i++)
    if (shares.each[i].process > 0) call(__NR_kill, shares.each[i].process, SIGKILL, 0, 0);
  for (int i = 0; i < shares.count; i++) reap_server(&shares.each[i], 0);
}
