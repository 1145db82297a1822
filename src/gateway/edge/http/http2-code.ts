/** Error codes of RFC 9113, section 7. Node's constants would load all of `node:http2`. */
export const Http2Code = { noError: 0, internalError: 2, cancel: 8, enhanceYourCalm: 11 } as const;
