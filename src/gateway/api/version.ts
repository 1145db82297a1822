import { refuse } from './refuse.ts';
import type { Handler } from './router.ts';

/** The API's own header, and the one that official clients send. */
const HEADERS = ['service-version', 'ngrok-version'];
const SUPPORTED = '2';

/** Refuses requests that do not say, or say wrongly, which version of the API they speak. */
export const requireVersion: Handler = (req, _res, next) => {
  const sent = HEADERS.map((name) => req.headers[name]).filter((value) => value !== undefined);
  if (sent.length === 0) {
    throw refuse(400, 218, `No API version was given. Send the header Service-Version: ${SUPPORTED}.`);
  }
  if (sent.some((value) => value !== SUPPORTED)) {
    throw refuse(400, 217, `The API version is not supported; send the header Service-Version: ${SUPPORTED}.`);
  }
  next();
};
