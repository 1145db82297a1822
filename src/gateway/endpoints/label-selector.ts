export type Labels = Readonly<Record<string, string>>;

/** Whether the labels include every one of the selector's. An empty selector matches nothing. */
export function matchesSelector(labels: Labels, selector: Labels): boolean {
  const entries = Object.entries(selector);
  return entries.length > 0 && entries.every(([key, value]) => Object.hasOwn(labels, key) && labels[key] === value);
}
