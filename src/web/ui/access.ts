/** How a policy lets clients in, in words of people. */
const WORDS: Readonly<Record<string, string>> = {
  everyone: 'everyone with the URL',
  certificate: 'a client certificate',
  password: 'a password',
  'sign-in': 'people who sign in',
  token: 'a token',
  link: 'a link',
};

/** Whether share links let somebody in. */
export function takesLinks(ways: readonly string[]): boolean {
  return ways.includes('link') || ways.includes('or-link');
}

/** Whether only other endpoints of the gateway lead to an endpoint. */
export function isInternal(url: string): boolean {
  return /\.internal(?::\d+)?$/.test(url);
}

/**
 * @param ways as the API names them
 * @param url of the endpoint
 */
export function accessText(ways: readonly string[], url = ''): string {
  const needed = ways.flatMap((way) => WORDS[way] ?? []);
  const isOpen = needed.length === 0;
  const everyone = isInternal(url) ? 'everyone whom other endpoints forward here' : WORDS.everyone;
  const first = isOpen && !ways.includes('policy') ? [everyone] : needed;
  const text = [
    ...(first.length > 0 ? [first.join(' and ') + (ways.includes('or-link') && !isOpen ? ', or a link' : '')] : []),
    ...(ways.includes('addresses') ? ['from allowed addresses'] : []),
    ...(ways.includes('policy') ? [isOpen ? 'its policy decides' : 'its policy decides for some requests'] : []),
  ].join('; ');
  return text.charAt(0).toUpperCase() + text.slice(1);
}
