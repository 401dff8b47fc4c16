package tree

import (
	"fmt"
	"github.com/rackless/rackless/internal/lists"
	"github.com/rackless/rackless/internal/words"
	"io/fs"
	"slices"
	"strings"
)

// A Builder makes a Mem. The zero value is ready to use. It makes the directories above an entry, and cleans names:
// "./sys/", "/sys" and "../sys" are all "sys", so that no name leads out of the tree.
//
// A later entry replaces an earlier one. It is an error to put an entry below one that is not a directory, or to
// replace a nonempty directory with another kind of entry.
type Builder struct {
	root    *node
	entries int
	slab    []node
	names   map[string]string // names in sysfs repeat thousands of times
	lastDir *node             // of the previous entry
	last    string
}

// slabNodes are allocated at once.
const slabNodes = 256

// indexFrom is the number of entries from which a directory is searched by a map.
const indexFrom = 16

// File adds a regular file; data is not copied.
func (b *Builder) File(name string, data []byte) error {
	return b.put(name, node{mode: 0o444, data: data})
}

// Dir adds a directory unless it exists.
func (b *Builder) Dir(name string) error { return b.put(name, node{mode: fs.ModeDir | 0o555}) }

// Link adds a symbolic link. Its target need not exist.
func (b *Builder) Link(name, target string) error {
	return b.put(name, node{mode: fs.ModeSymlink | 0o777, target: target})
}

// Unreadable adds an entry whose content or list is the error err. The type bits of mode give its type: 0 is a regular
// file. An existing directory keeps its entries, which stay reachable by name.
func (b *Builder) Unreadable(name string, mode fs.FileMode, err error) error {
	if err == nil {
		return fmt.Errorf("add %q: an unreadable entry needs its error", name)
	}
	return b.put(name, node{mode: mode.Type(), err: err})
}

// Hidden adds an entry for which every operation returns err, as in a directory without search permission. The list of
// its directory includes it.
func (b *Builder) Hidden(name string, err error) error {
	if err == nil {
		return fmt.Errorf("add %q: a hidden entry needs its error", name)
	}
	return b.put(name, node{mode: fs.ModeIrregular, err: err, hidden: true})
}

// hardLink names a file at target that was added before.
func (b *Builder) hardLink(name, target string) error {
	n := b.find(clean(target))
	if n == nil || n.IsDir() {
		return fmt.Errorf("add %q: it is a hard link to %q, which is not a file before it", name, target)
	}
	return b.put(name, node{mode: n.mode, data: n.data, target: n.target, err: n.err})
}

// Mem returns the tree. The builder then starts over.
func (b *Builder) Mem() *Mem {
	b.start()
	m := &Mem{root: b.root}
	finish(m.root)
	*b = Builder{}
	return m
}

func (b *Builder) start() {
	if b.root == nil {
		b.root = &node{name: ".", mode: fs.ModeDir | 0o555}
		b.names = make(map[string]string)
	}
}

// finish recurses only as deep as put allows.
func finish(n *node) {
	n.index = nil
	if !slices.IsSortedFunc(n.children, byName) {
		slices.SortFunc(n.children, byName)
	}
	for _, c := range n.children {
		if c.IsDir() {
			finish(c)
		}
	}
}

func byName(a, b *node) int { return strings.Compare(a.name, b.name) }

// Sysfs with many PCI bridges stays below 40 elements.
const maxDepth = 256

func (b *Builder) put(name string, n node) error {
	b.start()
	name = clean(name)
	if name == "." {
		if !n.mode.IsDir() {
			return fmt.Errorf("add %q: the root of the tree is a directory", name)
		}
		b.root.err = n.err
		return nil
	}
	dir, err := b.dir(name)
	if err != nil {
		return err
	}
	last := base(name)
	old := dir.built(last)
	switch {
	case old == nil:
		b.attach(dir, last, n)
	case old.IsDir() && n.mode.IsDir():
		old.err = n.err
	case old.IsDir() && len(old.children) > 0:
		return fmt.Errorf("add %q: it is a directory with entries, and cannot become something else", name)
	default:
		n.name, n.parent = old.name, old.parent
		*old = n
		b.last, b.lastDir = "", nil
	}
	return nil
}

func (b *Builder) dir(name string) (*node, error) {
	end := strings.LastIndexByte(name, '/')
	if end < 0 {
		return b.root, nil
	}
	if b.lastDir != nil && name[:end] == b.last {
		return b.lastDir, nil
	}
	at := b.root
	depth := 0
	for rest := name[:end]; rest != ""; {
		var element string
		element, rest = cutElement(rest)
		if depth++; depth > maxDepth {
			return nil, fmt.Errorf("add %q: it has more than %d directories", clip(name), maxDepth)
		}
		next := at.built(element)
		if next == nil {
			next = b.attach(at, element, node{mode: fs.ModeDir | 0o555})
		}
		if !next.IsDir() {
			return nil, fmt.Errorf("add %q: %q above it is not a directory", name, next.name)
		}
		at = next
	}
	b.last, b.lastDir = name[:end], at
	return at, nil
}

// built finds an entry of an unsorted directory.
func (n *node) built(name string) *node {
	if n.index != nil {
		return n.index[name]
	}
	return lists.Find(n.children, func(c *node) bool { return c.name == name })
}

func (b *Builder) attach(dir *node, name string, n node) *node {
	if len(b.slab) == cap(b.slab) {
		b.slab = make([]node, 0, slabNodes)
	}
	kept, ok := b.names[name]
	if !ok {
		kept = strings.Clone(name)
		b.names[kept] = kept
	}
	n.name, n.parent = kept, dir
	b.slab = append(b.slab, n)
	c := &b.slab[len(b.slab)-1]
	dir.children = append(dir.children, c)
	b.entries++
	switch {
	case dir.index != nil:
		dir.index[kept] = c
	case len(dir.children) >= indexFrom:
		dir.index = make(map[string]*node, 2*indexFrom)
		for _, c := range dir.children {
			dir.index[c.name] = c
		}
	}
	return c
}

// find does not follow links.
func (b *Builder) find(name string) *node {
	b.start()
	at := b.root
	if name == "." {
		return at
	}
	for element := range strings.SplitSeq(name, "/") {
		if at = at.built(element); at == nil {
			return nil
		}
	}
	return at
}

func clip(s string) string { return words.Clip(s, 100) }
