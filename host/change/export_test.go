package change

import (
	"os"
	"slices"
)

// Abandon drops a journal as a killed process does.
func Abandon(j *Journal) {
	j.file.Close()
	j.lock.Close()
}

// Replay returns the steps to undo, by kind and subject, and the damage.
func Replay(data, head []byte, kinds Kinds) (known []string, damage *DamagedError, err error) {
	j := newJournal("journal", kinds)
	damage, err = j.replay(data, head)
	for _, e := range j.entries {
		known = append(known, e.Op.Kind()+" "+e.Op.Subject()+" "+string(e.Before))
	}
	return slices.Clip(known), damage, err
}

// HeadOf returns the head of a journal with these lines.
func HeadOf(data []byte, kinds Kinds) []byte {
	j := newJournal("journal", kinds)
	if _, err := j.replay(data, nil); err != nil {
		panic(err)
	}
	line, err := sealed(head{j.lines, j.total(), len(j.entries)})
	if err != nil {
		panic(err)
	}
	return line
}

// BreakWrites makes all further writes of lines fail.
func BreakWrites(j *Journal) {
	if f, err := os.Open(j.path); err == nil {
		j.file.Close()
		j.file = f
	}
}
