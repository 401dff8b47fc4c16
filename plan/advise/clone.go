package advise

import "reflect"

// deepCopy returns a copy of v that shares nothing that can be written through the fields of v's
// types: pointers, slices and maps are copied all the way down. It walks the types instead of
// naming their fields, so that a field added to a Host is copied too.
//
// A struct with unexported fields (topology.CPUSet, netip.Prefix) is copied as a value: such types are immutable.
func deepCopy[T any](v T) T {
	return copyValue(reflect.ValueOf(&v).Elem()).Interface().(T)
}

func copyValue(v reflect.Value) reflect.Value {
	switch v.Kind() {
	case reflect.Pointer:
		if v.IsNil() {
			return v
		}
		out := reflect.New(v.Type().Elem())
		out.Elem().Set(copyValue(v.Elem()))
		return out
	case reflect.Slice:
		if v.IsNil() {
			return v
		}
		out := reflect.MakeSlice(v.Type(), v.Len(), v.Len())
		for i := range v.Len() {
			out.Index(i).Set(copyValue(v.Index(i)))
		}
		return out
	case reflect.Map:
		if v.IsNil() {
			return v
		}
		out := reflect.MakeMapWithSize(v.Type(), v.Len())
		for it := v.MapRange(); it.Next(); {
			out.SetMapIndex(it.Key(), copyValue(it.Value()))
		}
		return out
	case reflect.Struct:
		out := reflect.New(v.Type()).Elem()
		out.Set(v)
		for i := range v.NumField() {
			if !v.Type().Field(i).IsExported() {
				return out // all or nothing: such a type keeps its own rules
			}
		}
		for i := range v.NumField() {
			out.Field(i).Set(copyValue(v.Field(i)))
		}
		return out
	}
	return v
}
