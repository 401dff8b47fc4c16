package tree

import "syscall"

// firstErrno is the first of Go's numbers for errors that Windows does not have.
const firstErrno = syscall.Errno(1 << 29)

// errnoNames are the errors that a machine's files return.
var errnoNames = map[syscall.Errno]string{
	syscall.E2BIG: "E2BIG", syscall.EACCES: "EACCES", syscall.EAGAIN: "EAGAIN", syscall.EBADMSG: "EBADMSG",
	syscall.EBUSY: "EBUSY", syscall.EFBIG: "EFBIG", syscall.EINVAL: "EINVAL", syscall.EIO: "EIO",
	syscall.EISDIR: "EISDIR", syscall.ELOOP: "ELOOP", syscall.ENAMETOOLONG: "ENAMETOOLONG",
	syscall.ENODATA: "ENODATA", syscall.ENODEV: "ENODEV", syscall.ENOENT: "ENOENT", syscall.ENOMEM: "ENOMEM",
	syscall.ENOSYS: "ENOSYS", syscall.ENOTDIR: "ENOTDIR", syscall.ENXIO: "ENXIO", syscall.EOPNOTSUPP: "EOPNOTSUPP",
	syscall.EPERM: "EPERM", syscall.ESTALE: "ESTALE", syscall.ETIMEDOUT: "ETIMEDOUT",
}

func errnoName(e syscall.Errno) string { return errnoNames[e] }
