package boot

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf16"

	"github.com/rackless/rackless/host/change"
	"github.com/rackless/rackless/internal/lists"
)

type loader interface {
	change.Op
	where() string
	guard(ctx context.Context, s *change.System) error
}

// GivesArguments reports whether op adds kernel arguments.
func GivesArguments(op change.Op) bool {
	_, ok := op.(loader)
	return ok
}

// detect trusts the firmware's record of the last boot first, because the disk may hold several boot loaders.
func detect(s *change.System, args []string) (loader, error) {
	hand := func(found, do string) loader { return &byHand{Args: args, Found: found, Todo: do} }
	if s.Exists("/run/ostree-booted") {
		if program := find(s, "rpm-ostree"); program != "" {
			return &rpmOSTree{Args: args, Program: program}, nil
		}
		return hand("an OSTree system without rpm-ostree", "with bootc in a file of /usr/lib/bootc/kargs.d of the "+
			"image, else by ostree admin kargs edit-in-place"), nil
	}
	for _, k := range keepers {
		if program := find(s, k.program); program != "" && s.Exists(k.file) {
			return hand(k.found, k.do), nil
		}
	}
	info, err1 := efiVariable(s, "LoaderInfo")
	stub, err2 := efiVariable(s, "StubInfo")
	selected, err3 := efiVariable(s, "LoaderEntrySelected")
	if err := errors.Join(err1, err2, err3); err != nil {
		return nil, err
	}
	switch {
	case stub != "" || strings.HasSuffix(selected, ".efi"):
		return hand("a unified kernel image, with the command line in it", "in "+kernelCmdline+", and build the "+
			"image again: kernel-install add-all, mkinitcpio -P or dracut --uefi --force, whichever built it"), nil
	case strings.HasPrefix(info, "systemd-boot"):
		dirs, err := entryDirs(s, "/boot", "/efi", "/boot/efi")
		if err != nil {
			return nil, err
		}
		if len(dirs) == 0 {
			return hand(info+", and no entries in /boot, /efi or /boot/efi",
				"in the line options of the entries that bootctl list shows"), nil
		}
		return &entries{Args: args, Dirs: dirs}, nil
	case info != "" && !strings.HasPrefix(info, "GRUB"):
		return hand(info, "where that keeps the command line of the kernel"), nil
	}
	return detectGRUB(s, args, info != "", hand)
}

// detectGRUB also takes an unknown boot loader (not certain): only newer GRUBs record themselves in the firmware.
func detectGRUB(s *change.System, args []string, certain bool, hand func(found, do string) loader) (loader, error) {
	configs, err := grubConfigs(s)
	if err != nil {
		return nil, err
	}
	if len(configs) == 0 {
		for _, h := range hints {
			if s.Exists(h.file) {
				return hand(h.file, h.do), nil
			}
		}
		return hand("no boot loader that is known", "where the boot loader of this machine keeps the command line of "+
			"the kernel"), nil
	}
	// Either of the two may start the machine.
	if !certain && s.Exists("/sys/firmware/efi") && !s.Exists("/sys/firmware/efi/efivars/BootCurrent-"+
		globalVariables) {
		others, err := entryDirs(s, "/efi", "/boot/efi")
		if err != nil {
			return nil, err
		}
		if len(others) > 0 {
			return hand("GRUB in "+configs[0].path+" and boot entries in "+others[0]+
				", and the firmware's variables cannot be read, which say which of the two it is",
				"where the right one has it, or mount efivarfs on /sys/firmware/efi/efivars, and prepare again"), nil
		}
	}
	if slices.ContainsFunc(configs, func(c grubConfig) bool { return c.menu.bls }) {
		dirs, err := entryDirs(s, "/boot")
		if err != nil {
			return nil, err
		}
		if len(dirs) == 0 {
			return hand("GRUB, and no entries in /boot/loader/entries", "with grubby --update-kernel=ALL"), nil
		}
		env, err := follow(s, "/boot/grub2/grubenv")
		return &entries{Args: args, Dirs: dirs, Env: env, Grubby: find(s, "grubby")}, err
	}
	if len(configs) > 1 {
		paths := lists.Map(configs, func(c grubConfig) string { return c.path })
		return hand("more than one menu of GRUB: "+strings.Join(paths, ", "), "in "+grubSettings+
			", and make the right one of these again; remove the others, and rackless does it"), nil
	}
	config := configs[0].path
	names := []string{"grub-mkconfig", "grub2-mkconfig"}
	if strings.Contains(config, "grub2") {
		slices.Reverse(names)
	}
	g := &grub{Args: args, Config: config, Program: find(s, names...)}
	if g.Program == "" {
		return hand("GRUB without grub-mkconfig", "in the lines linux of "+config), nil
	}
	script, err := s.ReadFile(g.Program)
	if err != nil {
		return nil, err
	}
	// Only the grub-mkconfig of Debian and Ubuntu reads the directory; upstream's and SUSE's do not.
	if g.DropIn = strings.Contains(string(script), "default/grub.d"); g.DropIn {
		g.Settings = grubDropIn
		return g, nil
	}
	if g.Settings, err = follow(s, grubSettings); err != nil {
		return nil, err
	}
	if !s.Exists(g.Settings) {
		return hand("GRUB without "+grubSettings, "in the lines linux of "+config), nil
	}
	return g, nil
}

type grubConfig struct {
	path string
	menu *menu
}

// grubConfigs skips files that only lead to another menu.
func grubConfigs(s *change.System) ([]grubConfig, error) {
	efi, err := filepath.Glob(s.Path("/boot/efi/EFI/*/grub.cfg"))
	if err != nil {
		return nil, err
	}
	paths := []string{"/boot/grub/grub.cfg", "/boot/grub2/grub.cfg"}
	for _, full := range efi {
		paths = append(paths, "/boot/efi/EFI/"+filepath.Base(filepath.Dir(full))+"/grub.cfg")
	}
	var configs []grubConfig
	for _, p := range paths {
		if p, err = follow(s, p); err != nil {
			return nil, err
		}
		text, err := s.ValueOr(p, "")
		if err != nil {
			return nil, err
		}
		m, err := parseMenu(text)
		if err != nil {
			return nil, fmt.Errorf("%s: %w: make it again with grub-mkconfig", p, err)
		}
		known := slices.ContainsFunc(configs, func(c grubConfig) bool { return c.path == p })
		if (m.bls || len(m.entries) > 0) && !known {
			configs = append(configs, grubConfig{p, m})
		}
	}
	return configs, nil
}

func entryDirs(s *change.System, partitions ...string) ([]string, error) {
	var dirs []string
	for _, p := range partitions {
		dir, err := follow(s, p)
		if err != nil {
			return nil, err
		}
		dir = path.Join(dir, "loader/entries")
		files, err := listEntries(s, dir)
		if err != nil {
			return nil, err
		}
		if len(files) > 0 && !slices.Contains(dirs, dir) {
			dirs = append(dirs, dir)
		}
	}
	return dirs, nil
}

// GUIDs of the boot loader interface (systemd.io/BOOT_LOADER_INTERFACE) and of UEFI itself.
const (
	loaderVariables = "4a67b082-0a4c-41cf-b6c7-440b29bb8c4f"
	globalVariables = "8be4df61-93ca-11d2-aa0d-00e098032b8c"
)

// efiVariable reads four bytes of attributes and UTF-16 with a zero at the end. It returns "" for a missing variable.
func efiVariable(s *change.System, name string) (string, error) {
	data, err := s.ValueOr("/sys/firmware/efi/efivars/"+name+"-"+loaderVariables, "")
	if err != nil || len(data) < 4 {
		return "", err
	}
	data = data[4:] // attributes
	var units []uint16
	for ; len(data) >= 2; data = data[2:] {
		units = append(units, binary.LittleEndian.Uint16([]byte(data)))
	}
	return strings.TrimRight(string(utf16.Decode(units)), "\x00"), nil
}

// keepers rewrite the boot entries from their own settings, so edits of entries alone would be lost.
var keepers = []struct{ program, file, found, do string }{
	{"proxmox-boot-tool", "/etc/kernel/proxmox-boot-uuids", "boot partitions that proxmox-boot-tool writes",
		"in " + grubSettings + " (GRUB) or " + kernelCmdline + " (systemd-boot), and run proxmox-boot-tool refresh"},
	{"kernelstub", "/etc/kernelstub/configuration", "kernelstub",
		"with kernelstub --add-options, after kernelstub --delete-options of other values of the same"},
}

var hints = []struct{ file, do string }{
	{"/etc/default/u-boot", "in U_BOOT_PARAMETERS of it, and run u-boot-update"},
	{"/boot/extlinux/extlinux.conf", "in its lines append"},
	{"/boot/firmware/cmdline.txt", "in its one line"},
	{"/boot/cmdline.txt", "in its one line"},
	{"/etc/zipl.conf", "in its lines parameters or in those options of /boot/loader/entries, and run zipl"},
	{"/boot/refind_linux.conf", "in each of its lines"},
	{"/boot/limine.conf", "in its lines cmdline"},
}
