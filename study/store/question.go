package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"
)

// maxValue limits one value of an answer, and a statement, in bytes.
const maxValue = 64 << 20

// Query passes on the answer to a question in SQL row by row: nil, int64, float64, string or []byte. On a DB of
// [OpenReader], the question must be a single statement that only reads. It ends with ctx.
func (d *DB) Query(ctx context.Context, question string, head func(columns []string) error,
	row func(values []any) error) error {
	if d.how != writer {
		if err := readsOnly(question); err != nil {
			return err
		}
	}
	return d.ask(ctx, func(rows *sql.Rows) error {
		columns, err := rows.Columns()
		if err != nil {
			return err
		}
		if err := head(columns); err != nil {
			return err
		}
		values := make([]any, len(columns))
		into := make([]any, len(columns))
		for i := range values {
			into[i] = &values[i]
		}
		for rows.Next() {
			if err := rows.Scan(into...); err != nil {
				return err
			}
			if err := row(values); err != nil {
				return err
			}
		}
		return nil
	}, question)
}

func (d *DB) ask(ctx context.Context, use func(*sql.Rows) error, question string, args ...any) error {
	conn, err := d.sql.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	if d.how != writer {
		// ATTACH could open a second file for writing, and VACUUM INTO attaches too.
		_, err := sqlite.Limit(conn, sqlite3.SQLITE_LIMIT_ATTACHED, 0)
		if _, e := sqlite.Limit(conn, sqlite3.SQLITE_LIMIT_LENGTH, maxValue); err != nil || e != nil {
			return errors.Join(err, e)
		}
	}
	stop, err := interruptWith(ctx, conn)
	if err != nil {
		return err
	}
	defer stop()
	rows, err := conn.QueryContext(ctx, question, args...)
	if err == nil {
		defer rows.Close()
		err = errors.Join(use(rows), rows.Err())
	}
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// interruptWith interrupts a query when ctx is done, until stop is called. The driver does so only before the first
// row, but a query may search for its second row forever. SQLite's handle is in an unexported field.
func interruptWith(ctx context.Context, conn *sql.Conn) (stop func(), err error) {
	var handle uintptr
	err = conn.Raw(func(driver any) error {
		db := reflect.Indirect(reflect.ValueOf(driver)).FieldByName("db")
		if !db.IsValid() || db.Kind() != reflect.Uintptr {
			return fmt.Errorf("%T has no handle of SQLite", driver)
		}
		handle = uintptr(db.Uint())
		return nil
	})
	ended, done := make(chan struct{}), make(chan struct{})
	unused := context.AfterFunc(ctx, func() {
		defer close(done)
		if err != nil {
			return
		}
		// SQLite forgets an interrupt that comes before the query's first step.
		for tick := time.Tick(interruptEvery); ; {
			sqlite3.Xsqlite3_interrupt(nil, handle)
			select {
			case <-ended:
				return
			case <-tick:
			}
		}
	})
	return func() {
		close(ended)
		if !unused() {
			<-done // before the handle may be closed
		}
	}, err
}

const interruptEvery = 10 * time.Millisecond

// readsOnly allows one statement that reads. SQLite would protect the file, but PRAGMA affects later statements, and of
// several only one answer is returned.
func readsOnly(question string) error {
	text, err := oneStatement(question)
	if err != nil {
		return err
	}
	words := strings.FieldsFunc(strings.ToUpper(text), func(r rune) bool { return r != '_' && (r < 'A' || r > 'Z') })
	for len(words) > 1 && slices.Contains([]string{"EXPLAIN", "QUERY", "PLAN"}, words[0]) {
		words = words[1:]
	}
	switch {
	case len(words) == 0:
		return errors.New("there is no statement in it")
	case slices.Contains([]string{"SELECT", "WITH", "VALUES"}, words[0]),
		words[0] == "PRAGMA" && len(words) > 1 && slices.Contains([]string{"TABLE_INFO", "TABLE_XINFO", "TABLE_LIST",
			"INDEX_LIST", "INDEX_INFO", "FOREIGN_KEY_LIST"}, words[1]):
		return nil
	}
	return fmt.Errorf("%.20s: only statements that read are run: SELECT, VALUES, WITH, EXPLAIN, and PRAGMA table_info "+
		"and the like", words[0])
}

// oneStatement follows SQLite's rules for tokens.
func oneStatement(question string) (string, error) {
	through := func(s, end string) string {
		if _, after, ok := strings.Cut(s[1:], end); ok {
			return strings.TrimSuffix(s, after)
		}
		return s
	}
	closed := map[byte]string{'\'': "'", '"': `"`, '`': "`", '[': "]"}
	var text strings.Builder
	begun, ended := false, false
	for s, token := question, ""; s != ""; s = s[len(token):] {
		end, quoted := closed[s[0]]
		switch token = s[:1]; {
		case strings.HasPrefix(s, "--"):
			token = through(s, "\n")
			text.WriteByte(' ')
			continue
		case strings.HasPrefix(s, "/*"):
			token = "/*" + through(" "+s[2:], "*/")[1:]
			text.WriteByte(' ')
			continue
		case quoted:
			token = through(s, end)
		case token == ";":
			ended = begun
			continue
		case strings.Contains("?$@:#\x00", token):
			// Names of variables may contain semicolons.
			return "", fmt.Errorf("%q outside a text: a question has no variables", token)
		}
		if strings.TrimSpace(token) != "" {
			if ended {
				return "", errors.New("more than one statement: ask one at a time")
			}
			begun = true
		}
		text.WriteString(token)
	}
	return text.String(), nil
}
