/**
 * A row with some of its columns set anew.
 *
 * @param changes what was sent; a column that is absent or undefined keeps its value
 */
export function changed<Row extends object>(row: Row, changes: { [Name in keyof Row]?: Row[Name] | undefined }): Row {
  const result = { ...row };
  for (const name of Object.keys(changes) as (keyof Row)[]) {
    const value = changes[name];
    if (value !== undefined) result[name] = value;
  }
  return result;
}
