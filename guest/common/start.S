/* The first instructions of a program: calls start(stack) with the stack as the kernel left it, which begins with argc. */
  .globl _start
  .text
_start:
#if defined(__x86_64__)
  xor %ebp, %ebp
  mov %rsp, %rdi
  and $-16, %rsp
  call start

/* The kernel returns from a handler of a signal to here: this processor has no other way back (SA_RESTORER). */
  .globl restore_signal
restore_signal:
  mov $15, %eax /* rt_sigreturn */
  syscall
#else
  mov x29, #0
  mov x0, sp
  bl start
#endif
  .section .note.GNU-stack, "", %progbits
