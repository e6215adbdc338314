/** Where DuckDB's addon lies in the executable's cache: set before anything of it is loaded. */
export const addon = { path: "" };
