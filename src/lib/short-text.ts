/** The beginning of a text, at most so many UTF-16 units: the last character is whole, or left out. */
export function shortText(text: string, max: number): string {
  return text.length <= max ? text : text.slice(0, max).replace(/[\ud800-\udbff]$/, '');
}
