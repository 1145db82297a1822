/**
 * A row with new values in some of its columns.
 *
 * @param changes new values; absent and undefined columns keep theirs
 */
export function changed<Row extends object>(row: Row, changes: { [Name in keyof Row]?: Row[Name] | undefined }): Row {
  const result = { ...row };
  for (const name of Object.keys(changes) as (keyof Row)[]) {
    const value = changes[name];
    if (value !== undefined) result[name] = value;
  }
  return result;
}
