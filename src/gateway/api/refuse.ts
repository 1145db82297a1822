import { ApiError, type ApiErrorOptions } from '../../lib/errors.ts';
import { errorCode } from '../../management/resources/refusal.ts';
import type { ReadableResource } from '../../management/resources/resource.ts';

/** @param code number of the error code: 420 for `ERR_NGROK_420` */
export function refuse(status: number, code: number, message: string, options?: ApiErrorOptions): ApiError {
  return new ApiError(status, errorCode(code), message, options);
}

export function unknownId(resource: Pick<ReadableResource, 'name' | 'unknownIdCode'>): ApiError {
  return refuse(404, resource.unknownIdCode, `no ${resource.name} has this id`);
}
