package studyview

import "reflect"

// cleaned gives a deep copy in which every text went through f: keys of maps, and texts of named types too. It is done once, before anything is
// computed, so that no output can forget a field. What is not exported is shared with the original.
func cleaned[T any](v T, f func(string) string) T {
	return cleanValue(reflect.ValueOf(&v).Elem(), f).Interface().(T)
}

func cleanValue(v reflect.Value, f func(string) string) reflect.Value {
	out := reflect.New(v.Type()).Elem()
	out.Set(v)
	switch v.Kind() {
	case reflect.String:
		out.SetString(f(v.String()))
	case reflect.Pointer:
		if !v.IsNil() {
			out.Set(reflect.New(v.Type().Elem()))
			out.Elem().Set(cleanValue(v.Elem(), f))
		}
	case reflect.Slice:
		if v.IsNil() || !hasText(v.Type().Elem()) {
			break
		}
		out.Set(reflect.MakeSlice(v.Type(), v.Len(), v.Len()))
		for i := range v.Len() {
			out.Index(i).Set(cleanValue(v.Index(i), f))
		}
	case reflect.Array:
		for i := range v.Len() {
			out.Index(i).Set(cleanValue(v.Index(i), f))
		}
	case reflect.Map:
		if v.IsNil() {
			break
		}
		out.Set(reflect.MakeMapWithSize(v.Type(), v.Len()))
		for _, k := range v.MapKeys() {
			out.SetMapIndex(cleanValue(k, f), cleanValue(v.MapIndex(k), f))
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				out.Field(i).Set(cleanValue(v.Field(i), f))
			}
		}
	}
	return out
}

// hasText reports whether a type can hold text: lists of a million numbers need no second look.
func hasText(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.String, reflect.Pointer, reflect.Slice, reflect.Array, reflect.Map, reflect.Struct:
		return true
	}
	return false
}
