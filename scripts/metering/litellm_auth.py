"""Custom auth of LiteLLM, as its documentation describes it: each key has a limit of tokens per window of its own."""
import os

from litellm.proxy._types import UserAPIKeyAuth


async def user_api_key_auth(request, api_key: str) -> UserAPIKeyAuth:
    return UserAPIKeyAuth(api_key=api_key, tpm_limit=int(os.environ["METER_LIMIT"]))
