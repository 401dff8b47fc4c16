// Package userdirs finds the directories of a user.
package userdirs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Dirs are the directories in which rackless keeps its files.
type Dirs struct {
	Run   string // short-named since socket paths are limited
	Cache string // can be deleted at any time
	Data  string // results of measurements
}

// Default uses RACKLESS_RUN, RACKLESS_CACHE and RACKLESS_DATA, else the XDG base directories. Without HOME, as in a
// systemd unit, it looks the home directory up in the user's account.
func Default(getenv func(string) string, uid int) (Dirs, error) {
	places := places{getenv, home(getenv, uid)}
	run, xdgRun := "/run/rackless", "" // sudo may keep the caller's XDG_RUNTIME_DIR, which root should not fill
	if uid != 0 {
		run, xdgRun = fmt.Sprintf("/tmp/rackless-%d", uid), "XDG_RUNTIME_DIR"
	}
	d := Dirs{
		Run:   places.pick("RACKLESS_RUN", xdgRun, run),
		Cache: places.pick("RACKLESS_CACHE", "XDG_CACHE_HOME", places.below(".cache/rackless")),
		Data:  places.pick("RACKLESS_DATA", "XDG_DATA_HOME", places.below(".local/share/rackless")),
	}
	if d.Cache == "" || d.Data == "" {
		return Dirs{}, fmt.Errorf("user %d has no home directory: set HOME, or RACKLESS_CACHE and RACKLESS_DATA", uid)
	}
	for _, p := range []*string{&d.Run, &d.Cache, &d.Data} {
		abs, err := filepath.Abs(*p) // the daemon and QEMU run in other directories
		if err != nil {
			return Dirs{}, err
		}
		*p = abs
	}
	return d, nil
}

type places struct {
	getenv func(string) string
	home   string // absolute, or "" if unknown
}

func home(getenv func(string) string, uid int) string {
	if home := getenv("HOME"); filepath.IsAbs(home) {
		return home
	}
	if account, err := user.LookupId(strconv.Itoa(uid)); err == nil && filepath.IsAbs(account.HomeDir) {
		return account.HomeDir
	}
	return ""
}

func (p places) below(dir string) string {
	if p.home == "" {
		return ""
	}
	return filepath.Join(p.home, dir)
}

func (p places) pick(own, xdg, fallback string) string {
	switch {
	case p.getenv(own) != "":
		return p.getenv(own)
	case xdg != "" && filepath.IsAbs(p.getenv(xdg)):
		return filepath.Join(p.getenv(xdg), "rackless")
	}
	return fallback
}

// UserDir returns the directory in an XDG variable, or the default below this user's home.
func UserDir(getenv func(string) string, uid int, xdg, belowHome string) (string, error) {
	if dir := getenv(xdg); filepath.IsAbs(dir) {
		return dir, nil
	}
	dir := places{getenv, home(getenv, uid)}.below(belowHome)
	if dir == "" {
		return "", fmt.Errorf("user %d has no home directory: set HOME or %s", uid, xdg)
	}
	return dir, nil
}

// ConfigFile returns RACKLESS_CONFIG, else rackless/config.yaml in XDG_CONFIG_HOME or ~/.config, or "" if missing. The
// default file is refused if others can write it, since it controls rackless.
func ConfigFile(getenv func(string) string, uid int) (string, error) {
	if file := getenv("RACKLESS_CONFIG"); file != "" {
		return file, nil
	}
	p := places{getenv, home(getenv, uid)}
	dir := p.pick("", "XDG_CONFIG_HOME", p.below(".config/rackless"))
	file := filepath.Join(dir, "config.yaml")
	if _, err := os.Stat(file); dir == "" || errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err := checkOurs(file, uid); err != nil {
		return "", fmt.Errorf("config file: %w", err)
	}
	return file, nil
}

// Check refuses directories that others own or can write, because rackless trusts the files in them.
func (d Dirs) Check(uid int) error {
	for _, x := range [][2]string{{d.Run, "RACKLESS_RUN"}, {d.Cache, "RACKLESS_CACHE"}, {d.Data, "RACKLESS_DATA"}} {
		if err := checkOurs(x[0], uid); err != nil {
			return fmt.Errorf("%w, or set %s to another directory", err, x[1])
		}
	}
	return nil
}

// checkOurs refuses a path that another user owns, can write, or can replace.
func checkOurs(dir string, uid int) error {
	if real, err := filepath.EvalSymlinks(dir); err == nil {
		dir = real
	}
	for at := dir; ; at = filepath.Dir(at) {
		fi, err := os.Stat(at)
		if err == nil && at == dir && (fi.IsDir() || fi.Mode().IsRegular()) {
			err = readable(dir)
		}
		if errors.Is(err, fs.ErrPermission) {
			return fmt.Errorf("user %d, who runs rackless, may not read %s: run it as the user whose it is", uid, at)
		}
		if err == nil {
			owner, known := ownerOf(fi)
			writable := fi.Mode()&0o002 != 0 && fi.Mode()&fs.ModeSticky == 0 // /tmp has the sticky bit
			switch {
			case at == dir && known && owner != uid && owner != 0:
				return fmt.Errorf("%s belongs to user %d, and not to %d who runs rackless: chown it", dir, owner, uid)
			case writable, at == dir && fi.Mode()&0o022 != 0:
				return fmt.Errorf("%s can be written by others (mode %04o): chmod go-w %s", at, fi.Mode().Perm(), at)
			}
		}
		if at == filepath.Dir(at) {
			return nil
		}
	}
}

// readable is an early check: a listing that fails later would be taken for an empty one.
func readable(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	return f.Close()
}

// Images returns the directory of the image cache.
func (d Dirs) Images() string { return filepath.Join(d.Cache, "images") }

// Templates returns the directory of the template cache.
func (d Dirs) Templates() string { return filepath.Join(d.Cache, "templates") }

// Lab returns the directory of a lab.
func (d Dirs) Lab(name string) string { return filepath.Join(d.Run, name) }

// HostsDir is the directory in Run for the hosts of package emulate.
const HostsDir = "hosts"

// Names returns the sorted names of all labs with a directory.
func (d Dirs) Names() ([]string, error) {
	entries, err := os.ReadDir(d.Run)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		if e.IsDir() && e.Name() != HostsDir && !strings.HasPrefix(e.Name(), ".") { // trial boots use the directory .k
			names = append(names, e.Name())
		}
	}
	slices.Sort(names)
	return names, nil
}
