/** A string, a bracket, a comma or colon, or anything else up to the next of them. */
const TOKEN = /"(?:\\.|[^"\\])*"|[{}[\],:]|[^\s{}[\],:"]+/g;

/** JSON with line breaks and indentation; all else is as it was sent, also numbers too large for JavaScript. Other text stays. */
export function indentedJson(text: string): string {
  if (!/^\s*[[{]/.test(text) || !isJson(text)) return text;
  const parts: string[] = [];
  let depth = 0;
  const newLine = () => `\n${'  '.repeat(depth)}`;
  let before = '';
  for (const token of text.match(TOKEN) ?? []) {
    const isClosing = token === '}' || token === ']';
    if (isClosing) depth--;
    const wasOpening = before === '{' || before === '[';
    if (isClosing !== wasOpening || before === ',') parts.push(newLine());
    parts.push(token === ':' ? ': ' : token);
    if (token === '{' || token === '[') depth++;
    before = token;
  }
  return parts.join('');
}

function isJson(text: string): boolean {
  try {
    JSON.parse(text);
    return true;
  } catch {
    return false;
  }
}
