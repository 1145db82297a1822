import { ApiError, type ApiErrorOptions } from '../../lib/errors.ts';

/** HTTP status by error code of an enrolment. Codes are never reused. */
const STATUS = {
  ERR_GATEWAY_CODE_UNKNOWN: 403,
  ERR_GATEWAY_CODE_REVOKED: 403,
  ERR_GATEWAY_CODE_EXPIRED: 403,
  ERR_GATEWAY_CODE_USED_UP: 403,
  ERR_GATEWAY_DEVICE_REVOKED: 403,
  ERR_GATEWAY_TOO_MANY_ENROLMENTS: 429,
} as const;

/** Why a device cannot join. */
export class EnrolmentError extends ApiError {
  constructor(code: keyof typeof STATUS, message: string, options?: ApiErrorOptions) {
    super(STATUS[code], code, message, options);
  }
}
