package device

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/rackless/rackless/host/change"
	"github.com/rackless/rackless/machine/topology"
)

type deviceFile struct {
	path string // "/dev/dri/card0"
	// number holds the major and minor number, or nil if unknown. Containers have device files under other names.
	number *uint64
	block  bool
}

// subsystems have device files that mean use of the card itself. Input devices behind USB controllers are left out,
// because a login manager has every keyboard open.
var subsystems = []string{"accel", "block", "drm", "fwctl", "infiniband_mad", "infiniband_verbs", "mlx5ctl", "nvme",
	"nvme-generic", "ptp", "sound", "uio", "vfio-dev", "vhost-vdpa"}

// deviceFiles includes the file of the IOMMU group, and NVIDIA's, which the kernel does not list.
func (f function) deviceFiles() ([]deviceFile, error) {
	files, err1 := f.listedFiles()
	driver, err2 := f.driver()
	if err := errors.Join(err1, err2); err != nil {
		return nil, err
	}
	switch driver {
	case vfioPCI:
		path, err := f.vfioFile()
		if err != nil {
			return nil, err
		}
		files = append(files, f.named(path))
	case nvidiaDriver:
		minor, err := nvidiaMinor(f.s, f.a)
		if err != nil {
			return nil, err
		}
		files = append(files, f.named("/dev/nvidia"+minor))
	}
	return files, nil
}

func (f function) named(path string) deviceFile {
	file := deviceFile{path: path}
	var st unix.Stat_t
	if unix.Stat(f.s.Path(path), &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFCHR {
		file.number = new(uint64(st.Rdev))
	}
	return file
}

func (f function) listedFiles() ([]deviceFile, error) {
	top, err := filepath.EvalSymlinks(f.s.Path(pciDevices + "/" + f.a.String()))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	files, err := filesBelow(top)
	if err != nil {
		return nil, err
	}
	// A disk that is reached through several NVMe controllers is below none of them, but below an NVMe subsystem.
	controllers, err := f.s.List(f.path("nvme"))
	if err != nil || len(controllers) == 0 {
		return files, err
	}
	const subsystemClass = "/sys/class/nvme-subsystem"
	all, err := f.s.List(subsystemClass)
	if err != nil {
		return nil, err
	}
	for _, name := range all {
		dir := subsystemClass + "/" + name
		if !slices.ContainsFunc(controllers, func(c string) bool { return f.s.Exists(dir + "/" + c) }) {
			continue
		}
		top, err := filepath.EvalSymlinks(f.s.Path(dir))
		if err != nil {
			return nil, err
		}
		more, err := filesBelow(top)
		if err != nil {
			return nil, err
		}
		files = append(files, more...)
	}
	return files, nil
}

// Each device has its number in "dev" and its name in "uevent" (Documentation/ABI/testing/sysfs-uevent and sysfs-dev).
func filesBelow(top string) ([]deviceFile, error) {
	var files []deviceFile
	err := filepath.WalkDir(top, func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // removed meanwhile
		}
		if err != nil {
			return err
		}
		if d.IsDir() && path != top {
			if _, err := topology.ParsePCIAddr(d.Name()); err == nil {
				return fs.SkipDir // another function, behind this bridge
			}
		}
		if d.IsDir() || d.Name() != "dev" {
			return nil
		}
		dir := filepath.Dir(path)
		to, err := os.Readlink(filepath.Join(dir, "subsystem"))
		if err != nil || !slices.Contains(subsystems, filepath.Base(to)) {
			return nil
		}
		file, err := readDeviceFile(dir)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		file.block = filepath.Base(to) == "block"
		files = append(files, file)
		return nil
	})
	return files, err
}

// readDeviceFile needs no DEVNAME, the path that udev makes below /dev: without it the file is named like the device.
func readDeviceFile(dir string) (deviceFile, error) {
	text, err := os.ReadFile(filepath.Join(dir, "dev"))
	if err != nil {
		return deviceFile{}, err
	}
	major, minor, _ := strings.Cut(strings.TrimSpace(string(text)), ":")
	ma, err1 := strconv.ParseUint(major, 10, 32)
	mi, err2 := strconv.ParseUint(minor, 10, 32)
	if err := errors.Join(err1, err2); err != nil {
		return deviceFile{}, fmt.Errorf("%s: %q is not a device number: %w", filepath.Join(dir, "dev"), text, err)
	}
	file := deviceFile{path: "/dev/" + filepath.Base(dir), number: new(unix.Mkdev(uint32(ma), uint32(mi)))}
	uevent, err := os.ReadFile(filepath.Join(dir, "uevent"))
	if err != nil {
		return deviceFile{}, err
	}
	for line := range strings.Lines(string(uevent)) {
		if name, ok := strings.CutPrefix(strings.TrimSpace(line), "DEVNAME="); ok {
			file.path = "/dev/" + strings.TrimPrefix(name, "/dev/")
		}
	}
	return file, nil
}

// Source: the driver's README, "Device Minor" of /proc/driver/nvidia/gpus/*/information.
func nvidiaMinor(s *change.System, a topology.PCIAddr) (string, error) {
	path := "/proc/driver/nvidia/gpus/" + a.String() + "/information"
	text, err := s.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("who uses GPU %s cannot be told: %w", a, err)
	}
	for line := range strings.Lines(string(text)) {
		key, value, _ := strings.Cut(line, ":")
		value = strings.TrimSpace(value)
		if _, err := strconv.ParseUint(value, 10, 16); err == nil && key == "Device Minor" {
			return value, nil
		}
	}
	return "", fmt.Errorf("who uses GPU %s cannot be told: %s has no \"Device Minor\"", a, path)
}

// openers matches device numbers, because containers use other names, and also names. It returns an error if processes
// cannot be read, as for any user but root.
func openers(s *change.System, files []deviceFile) ([]string, error) {
	if len(files) == 0 {
		return nil, nil
	}
	dirs, err := filepath.Glob(s.Path("/proc/[0-9]*"))
	if err != nil { // a bad pattern
		panic(err)
	}
	var users []string
	for _, dir := range dirs {
		fds, err := os.ReadDir(filepath.Join(dir, "fd"))
		if isGone(err) {
			continue
		}
		if errors.Is(err, fs.ErrPermission) {
			return nil, fmt.Errorf("who uses %s cannot be read: %w; run it as root", files[0].path, err)
		}
		if err != nil {
			return nil, err
		}
		var open []string
		for _, fd := range fds {
			name := whichFile(filepath.Join(dir, "fd", fd.Name()), files)
			if name != "" && !slices.Contains(open, name) {
				open = append(open, name)
			}
		}
		if len(open) == 0 {
			continue
		}
		comm, _ := os.ReadFile(filepath.Join(dir, "comm")) // empty if the process has ended
		users = append(users, fmt.Sprintf("%s (%s) has %s open", strings.TrimSpace(string(comm)), filepath.Base(dir),
			strings.Join(open, " ")))
	}
	return users, nil
}

// isGone: the directory of a process that ended is missing, or empty and returning ESRCH.
func isGone(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH) || errors.Is(err, syscall.ENOTDIR)
}

func whichFile(fd string, files []deviceFile) string {
	to, err := os.Readlink(fd)
	if err != nil || !strings.HasPrefix(to, "/") {
		return ""
	}
	for _, f := range files {
		if f.path == to {
			return f.path
		}
	}
	if !strings.HasPrefix(to, "/dev/") {
		// Device files elsewhere are ignored: examining every open file could block on network file systems.
		return ""
	}
	var st unix.Stat_t
	if unix.Stat(fd, &st) != nil {
		return ""
	}
	for _, f := range files {
		kind := uint32(unix.S_IFCHR)
		if f.block {
			kind = unix.S_IFBLK
		}
		if f.number != nil && st.Mode&unix.S_IFMT == kind && st.Rdev == *f.number {
			return to
		}
	}
	return ""
}
