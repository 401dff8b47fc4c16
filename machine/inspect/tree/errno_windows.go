package tree

import "syscall"

// Go's numbers from firstErrno on are for errors that Windows lacks.
const firstErrno = syscall.Errno(1 << 29)

var errnoNames = map[syscall.Errno]string{
	syscall.E2BIG: "E2BIG", syscall.EACCES: "EACCES", syscall.EAGAIN: "EAGAIN", syscall.EBADMSG: "EBADMSG",
	syscall.EBUSY: "EBUSY", syscall.EFBIG: "EFBIG", syscall.EINVAL: "EINVAL", syscall.EIO: "EIO",
	syscall.EISDIR: "EISDIR", syscall.ELOOP: "ELOOP", syscall.ENAMETOOLONG: "ENAMETOOLONG",
	syscall.ENODATA: "ENODATA", syscall.ENODEV: "ENODEV", syscall.ENOENT: "ENOENT", syscall.ENOMEM: "ENOMEM",
	syscall.ENOSYS: "ENOSYS", syscall.ENOTDIR: "ENOTDIR", syscall.ENXIO: "ENXIO", syscall.EOPNOTSUPP: "EOPNOTSUPP",
	syscall.EPERM: "EPERM", syscall.ESTALE: "ESTALE", syscall.ETIMEDOUT: "ETIMEDOUT",
}

func errnoName(e syscall.Errno) string { return errnoNames[e] }
