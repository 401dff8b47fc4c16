package change

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"syscall"

	"github.com/rackless/rackless/internal/words"
)

// A File is a regular file with a wanted content. Parent directories that were made are removed again on undo if empty.
type File struct {
	Path string      `json:"path"`
	Data []byte      `json:"data"`
	Mode fs.FileMode `json:"mode"`
	// Absent means that the file is to be removed.
	Absent bool `json:"absent,omitempty"`
}

type fileState struct {
	Data []byte      `json:"data,omitempty"`
	Mode fs.FileMode `json:"mode,omitempty"`
	UID  int         `json:"uid,omitempty"`
	GID  int         `json:"gid,omitempty"`
	Link string      `json:"link,omitempty"`
	// Missing means that the path did not exist. Made then lists its missing parent directories, outermost first.
	Missing bool     `json:"missing,omitempty"`
	Made    []string `json:"made,omitempty"`
}

// Kind implements [Op].
func (f *File) Kind() string { return "file" }

// Subject implements [Op].
func (f *File) Subject() string { return f.Path }

// Read returns an error if the path is neither a regular file nor a link, because rackless must not replace a directory
// or a device.
func (f *File) Read(_ context.Context, s *System) (State, error) {
	return Encode(readFileState(s, f.Path))
}

func readFileState(s *System, path string) (*fileState, error) {
	full := s.Path(path)
	info, err := os.Lstat(full)
	if errors.Is(err, fs.ErrNotExist) {
		st := &fileState{Missing: true}
		for dir := filepath.Dir(path); !s.Exists(dir); dir = filepath.Dir(dir) {
			st.Made = append([]string{dir}, st.Made...)
		}
		return st, nil
	}
	if err != nil {
		return nil, err
	}
	st := &fileState{Mode: info.Mode().Perm() | info.Mode()&(fs.ModeSetuid|fs.ModeSetgid|fs.ModeSticky)}
	if sys, ok := info.Sys().(*syscall.Stat_t); ok {
		st.UID, st.GID = int(sys.Uid), int(sys.Gid)
	}
	switch {
	case info.Mode()&fs.ModeSymlink != 0:
		st.Mode = 0
		st.Link, err = os.Readlink(full)
	case info.Mode().IsRegular():
		st.Data, err = os.ReadFile(full)
	default:
		err = fmt.Errorf("%s is neither a file nor a link, but %s", path, info.Mode().Type())
	}
	return st, err
}

// Done implements [Op].
func (f *File) Done(state State) bool {
	st, err := Decode[fileState](state)
	if err != nil {
		return false
	}
	if f.Absent {
		return st.Missing
	}
	return !st.Missing && st.Link == "" && st.Mode == f.Mode && bytes.Equal(st.Data, f.Data)
}

// Do leaves a new file to the caller, and a replaced one to its owner.
func (f *File) Do(_ context.Context, s *System) error {
	if f.Absent {
		return s.Remove(f.Path)
	}
	st, err := readFileState(s, f.Path)
	if err != nil {
		return err
	}
	uid, gid := st.UID, st.GID
	if st.Missing {
		uid, gid = os.Getuid(), os.Getgid()
		for _, dir := range st.Made {
			if err := s.Mkdir(dir, 0o755); err != nil {
				return err
			}
		}
	}
	return s.Replace(f.Path, f.Data, f.Mode, uid, gid)
}

// Restore implements [Op].
func (f *File) Restore(_ context.Context, s *System, before State) error {
	st, err := Decode[fileState](before)
	if err != nil {
		return err
	}
	return st.restore(s, f.Path)
}

// Restored accepts a directory that others use by now.
func (f *File) Restored(before, now State) bool {
	b, errB := Decode[fileState](before)
	n, errN := Decode[fileState](now)
	return errB == nil && errN == nil && (before == now || b.Missing && n.Missing)
}

// Merge implements [Merger].
func (f *File) Merge(_ context.Context, _ *System, u Undo) (State, []Changed, error) {
	set := describe(u.Made)
	if u.Made == "" {
		set = fmt.Sprintf("%d bytes", len(f.Data))
		if f.Absent {
			set = "no file"
		}
	}
	return u.Whole(f, f.Done(u.Now), Changed{What: f.Path, Found: describe(u.Now), Set: set})
}

// describe has a checksum instead of the content.
func describe(state State) string {
	st, err := Decode[fileState](state)
	switch {
	case err != nil:
		return brief(state)
	case st.Missing:
		return "no file"
	case st.Link != "":
		return "a link to " + st.Link
	}
	sum := sha256.Sum256(st.Data)
	return fmt.Sprintf("%d bytes (mode %04o, SHA-256 %x...)", len(st.Data), st.Mode, sum[:4])
}

func (st *fileState) restore(s *System, path string) error {
	if now, err := readFileState(s, path); err == nil && !st.Missing && reflect.DeepEqual(now, st) {
		return s.Remove(path + newSuffix)
	}
	switch {
	case st.Link != "":
		return s.Symlink(st.Link, path)
	case !st.Missing:
		return s.Replace(path, st.Data, st.Mode, st.UID, st.GID)
	}
	if err := s.Remove(path); err != nil {
		return err
	}
	for i := len(st.Made) - 1; i >= 0; i-- {
		if err := s.Remove(st.Made[i]); err != nil && !errors.Is(err, syscall.ENOTEMPTY) {
			return err
		}
	}
	return nil
}

// Shell implements [Manual].
func (f *File) Shell() []string {
	if f.Absent {
		return []string{"rm -f " + words.ShellWord(f.Path)}
	}
	return writeTo(f.Path, f.Data, f.Mode)
}

// A Link is a symbolic link, as made by systemctl enable.
type Link struct {
	Path string `json:"path"`
	To   string `json:"to"`
}

// Kind implements [Op].
func (l *Link) Kind() string { return "link" }

// Subject implements [Op].
func (l *Link) Subject() string { return l.Path }

// Read implements [Op].
func (l *Link) Read(ctx context.Context, s *System) (State, error) {
	return (&File{Path: l.Path}).Read(ctx, s)
}

// Done implements [Op].
func (l *Link) Done(state State) bool {
	st, err := Decode[fileState](state)
	return err == nil && st.Link == l.To
}

// Do implements [Op].
func (l *Link) Do(_ context.Context, s *System) error {
	st, err := readFileState(s, l.Path)
	if err != nil {
		return err
	}
	for _, dir := range st.Made {
		if err := s.Mkdir(dir, 0o755); err != nil {
			return err
		}
	}
	return s.Symlink(l.To, l.Path)
}

// Restore implements [Op].
func (l *Link) Restore(ctx context.Context, s *System, before State) error {
	return (&File{Path: l.Path}).Restore(ctx, s, before)
}

// Merge implements [Merger].
func (l *Link) Merge(_ context.Context, _ *System, u Undo) (State, []Changed, error) {
	return u.Whole(l, l.Done(u.Now), Changed{What: l.Path, Found: describe(u.Now), Set: "a link to " + l.To})
}

// Restored implements [Restorer].
func (l *Link) Restored(before, now State) bool { return (&File{}).Restored(before, now) }

// Shell implements [Manual].
func (l *Link) Shell() []string {
	return []string{"mkdir -p " + words.ShellWord(filepath.Dir(l.Path)),
		"ln -sfn " + words.ShellWord(l.To) + " " + words.ShellWord(l.Path)}
}

// A Value is a kernel file with one value, in sysfs, procfs or a cgroup.
type Value struct {
	Path string `json:"path"`
	Want string `json:"want"`
	// Write is the text to write, if not Want.
	Write string `json:"write,omitempty"`
}

// Kind implements [Op].
func (v *Value) Kind() string { return "value" }

// Subject implements [Op].
func (v *Value) Subject() string { return v.Path }

// missingValue is the state of a file that the kernel does not have. The newline sets it apart from any value.
const missingValue State = "\nmissing"

// Read returns the chosen word of a choice such as "always [madvise] never".
func (v *Value) Read(_ context.Context, s *System) (State, error) {
	text, err := s.ValueOr(v.Path, string(missingValue))
	return State(chosen(text)), err
}

func chosen(text string) string {
	if _, rest, ok := bytes.Cut([]byte(text), []byte("[")); ok {
		if word, _, ok := bytes.Cut(rest, []byte("]")); ok {
			return string(word)
		}
	}
	return text
}

// Done implements [Op].
func (v *Value) Done(state State) bool { return string(state) == v.Want }

// Do implements [Op].
func (v *Value) Do(_ context.Context, s *System) error {
	if v.Write != "" {
		return s.WriteValue(v.Path, v.Write)
	}
	return s.WriteValue(v.Path, v.Want)
}

// Restore leaves a file that did not exist before, because that file comes and goes with another op.
func (v *Value) Restore(ctx context.Context, s *System, before State) error {
	now, err := v.Read(ctx, s)
	if err != nil || now == before || before == missingValue || now == missingValue {
		return err
	}
	return s.WriteValue(v.Path, string(before))
}

// Merge does not count a file that has gone as changed by others.
func (v *Value) Merge(_ context.Context, _ *System, u Undo) (State, []Changed, error) {
	return u.Whole(v, v.Done(u.Now) || u.Now == missingValue, Changed{What: v.Path, Found: string(u.Now), Set: v.Want})
}

// Shell implements [Manual].
func (v *Value) Shell() []string {
	if v.Write != "" {
		return []string{EchoTo(v.Path, v.Write)}
	}
	return []string{EchoTo(v.Path, v.Want)}
}

// BasicKinds returns the ops of this package.
func BasicKinds() Kinds {
	return Kinds{
		"file":  func() Op { return &File{} },
		"link":  func() Op { return &Link{} },
		"value": func() Op { return &Value{} },
	}
}
