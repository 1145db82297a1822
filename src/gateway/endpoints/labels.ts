export type Labels = Readonly<Record<string, string>>;

/** Whether a tunnel's labels hold every one that is wanted; who wants none selects nothing. */
export function carriesLabels(labels: Labels, wanted: Labels): boolean {
  const selector = Object.entries(wanted);
  return selector.length > 0 && selector.every(([key, value]) => Object.hasOwn(labels, key) && labels[key] === value);
}
