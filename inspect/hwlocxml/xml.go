package hwlocxml

import (
	"cmp"
	"iter"
	"strings"

	"github.com/rackless/rackless/inspect/where"
	"github.com/rackless/rackless/inspect/xmltree"
)

// An Error is a file that cannot be read, and where.
type Error = where.Error

// An element is an object of hwloc, or what is said of one or beside them.
type element = xmltree.Element

// label names an element in messages.
func label(e *element) string {
	if t := e.Attr("type"); t != "" && e.Name == "object" {
		return "object " + t
	}
	return e.Name
}

// kindOf returns the object's type, in the words of version 2 where a word was changed.
func kindOf(e *element) string {
	t := e.Attr("type")
	switch t {
	case "Socket":
		return "Package"
	case "Node", "NUMANode":
		return "NUMANode"
	case "Proc": // before 1.0
		return "PU"
	case "Group":
		// A die was a group before hwloc 2.1; 104 is the kind of such a group.
		if e.Attr("subtype") == "Die" || e.Attr("kind") == "104" {
			return "Die"
		}
	}
	return t
}

// infoOf returns the value of the element's info of that name, "" where there is none. DMI strings
// come with spaces at their ends.
func infoOf(e *element, name string) string {
	for k := range e.All("info") {
		if k.Attr("name") == name {
			return strings.TrimSpace(k.Attr("value"))
		}
	}
	return ""
}

// subtypeOf returns the object's subtype. Version 1 has it as an info.
func subtypeOf(e *element) string {
	if s, ok := e.Lookup("subtype"); ok {
		return s
	}
	return cmp.Or(infoOf(e, "Type"), infoOf(e, "CoProcType"))
}

// objectsOf yields the object itself and all objects below it, in the order of the file.
func objectsOf(e *element) iter.Seq[*element] {
	return func(yield func(*element) bool) { walk(e, yield) }
}

func walk(e *element, yield func(*element) bool) bool {
	if !yield(e) {
		return false
	}
	for k := range e.All("object") {
		if !walk(k, yield) {
			return false
		}
	}
	return true
}
